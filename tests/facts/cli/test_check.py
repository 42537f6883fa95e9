"""The command that checks parts, and the example of a connection of one's own."""

import json
import shutil
from pathlib import Path

import pytest

from leadline.parts.connections import CONNECTIONS
from leadline.parts.norms import NORMS

EXAMPLE = Path(__file__).parents[3] / "examples" / "my_connection.py"

BROKEN = '''
"""A connection that forgets.

    x' = u

No paper.
"""

from leadline.parts.connections import CONNECTIONS, Connection


@CONNECTIONS.register("forgetful-of-a-test")
class Forgetful(Connection):
    """The update alone."""

    formula = "x + u"

    def write(self, state, update):
        return update
'''


@pytest.fixture(autouse=True)
def same_catalogs():
    """What a plug-in adds is taken out again."""
    before = {catalog: set(catalog.names()) for catalog in (CONNECTIONS, NORMS)}
    yield
    for catalog, names in before.items():
        for name in set(catalog.names()) - names:
            catalog._entries.pop(name)


@pytest.fixture
def example(tmp_path):
    return shutil.copy(EXAMPLE, tmp_path / "mine.py")


def test_the_example_is_about_twenty_five_lines_of_code():
    lines = EXAMPLE.read_text().split('"""', 2)[2].splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 30


def test_the_example_is_listed_explained_checked_and_measured(leadline, example):
    listed = leadline("list", "connections", "--plugin", example)
    assert "  momentum " in listed.out
    explained = leadline("explain", "momentum", "--plugin", example)
    assert "v' = g v + (1 - g) u        x' = x + v'" in explained.out
    assert "costs         no parameters" in explained.out
    # The file was loaded before, so its names are not new: its entries say where they stand.
    checked = leadline("check", example)
    assert checked.code == 0, checked.out
    assert "momentum (connection): all 31 checks passed." in checked.out
    tiny = ["--set=depth=2", "--set=width=16", "--set=heads=2", "--random", "2x6"]
    chosen = ["--recipe", "default", "--set", "connection=momentum(momentum=0.5)"]
    measured = leadline("measure", *chosen, *tiny, "--plugin", example, "--json")
    found = json.loads(measured.out)
    assert found["anatomy"]["balance_eps"] <= 4
    assert found["model"]["name"].startswith("default(connection=momentum(momentum=0.5)")
    proved = leadline("anatomy", *chosen, *tiny, "--plugin", example)
    assert "attention: x <- x + g v + (1 - g) u" in proved.out


def test_the_momentum_of_the_example_follows_its_formula():
    import torch

    from leadline.catalog import load_plugin
    from leadline.parts.place import Place

    load_plugin(EXAMPLE)
    connection = CONNECTIONS.build("momentum", place=Place(width=1, heads=1, depth=1, layer=1))
    state = connection.open(torch.tensor([[[1.0]]]))
    for expected in (1.0 + 0.2, 1.2 + (0.9 * 0.2 + 0.2)):
        state = connection.write(state, torch.tensor([[[2.0]]]))
        assert state[0].item() == pytest.approx(expected)


def test_a_failed_check_is_named_and_the_exit_code_is_one(leadline, tmp_path):
    file = tmp_path / "broken.py"
    file.write_text(BROKEN)
    said = leadline("check", file)
    assert said.code == 1
    assert "\n  failed  keeps_identity " in said.out
    assert "\n  ok      shapes " in said.out
    last = said.out.splitlines()[-1]
    assert last.startswith("forgetful-of-a-test (connection): ")
    assert "of 31 checks failed" in last
    assert "keeps_identity" in last
    quiet = leadline("check", file, "--quiet")
    assert (quiet.code, quiet.out, quiet.err) == (1, "", "")


def test_checks_are_printed_as_json_alone(leadline):
    said = leadline("check", "none(width=3)", "--json")
    assert said.code == 2
    assert "has no option 'width'" in said.err
    said = leadline("check", "rmsnorm", "--json")
    assert said.code == 0
    assert said.err == ""
    found = json.loads(said.out)
    assert found["passed"] is True
    (part,) = found["parts"]
    assert (part["kind"], part["name"], part["passed"]) == ("norm", "rmsnorm", True)
    assert part["place"].split(":")[0].endswith("rmsnorm.py")
    assert {"builds", "compile", "any vector"} <= {check["name"] for check in part["checks"]}
    assert all(check["passed"] and check["seconds"] > 0 for check in part["checks"])


def test_a_name_that_several_kinds_have_is_checked_in_all_of_them(leadline, monkeypatch):
    from leadline.testing import conformance

    asked = []

    def one_check(kind, choice, *, progress):
        progress("builds", 0, 1)
        asked.append((kind, str(choice)))
        return [conformance.PartCheck("builds", passed=True, detail="at once", seconds=0.1)]

    monkeypatch.setattr(conformance, "check_part", one_check)
    said = leadline("check", "none")
    assert ("norm", "none") in asked
    assert ("connection", "none") in asked
    assert said.out.splitlines()[-1] == "none (head): all 1 checks passed."
    asked.clear()
    assert leadline("check", "none(closing=false)").code == 0
    assert asked == [("placement", "none(closing=false)")]


def test_a_part_that_cannot_be_built_is_not_checked_further(leadline, tmp_path):
    file = tmp_path / "unbuildable.py"
    file.write_text(
        BROKEN.replace("forgetful-", "unbuildable-")
        + "\n    def __init__(self, place, *, needed):\n        super().__init__(place)\n"
    )
    said = leadline("check", file)
    assert said.code == 1
    assert "needs the option 'needed'" in said.out
    assert "cannot be built, so nothing else was checked." in said.out.splitlines()[-1]


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ("nowhere.py", "is not a file"),
        ("rezerro", "No part is called 'rezerro'. Did you mean 'rezero'?"),
        ("hyper(", "Cannot read the choice 'hyper('"),
        ("hyper(lane=4)", "has no option 'lane'. Did you mean 'lanes'?"),
    ],
)
def test_what_is_no_part_is_refused_with_a_sentence(leadline, part, sentence):
    said = leadline("check", part)
    assert said.code == 2
    assert said.out == ""
    assert sentence in said.err


def test_a_file_that_registers_nothing_is_told_what_to_write(leadline, tmp_path):
    file = tmp_path / "empty.py"
    file.write_text("x = 1\n")
    said = leadline("check", file)
    assert said.code == 2
    assert "registers no part" in said.err
    assert '@CONNECTIONS.register("mine")' in said.err
    file = tmp_path / "faulty.py"
    file.write_text("x = 1 / 0\n")
    assert "cannot be loaded: ZeroDivisionError" in leadline("check", file).err


WHOLE_PAGE = '''
"""Half: the update is halved. No paper.

    x' = x + u / 2
"""

from leadline.parts.connections import CONNECTIONS, Scalar


@CONNECTIONS.register("half-of-a-test")
class Half(Scalar):
    """x + u / 2."""

    formula = "x + u / 2"
    gain = 0.5
'''


def test_a_formula_that_is_all_of_the_page_is_seen(tmp_path, leadline):
    file = tmp_path / "half.py"
    file.write_text(WHOLE_PAGE.lstrip())
    said = leadline("explain", "half-of-a-test", "--plugin", str(file)).out
    assert "    x' = x + u / 2" in said
    checked = leadline("check", str(file))
    assert checked.code == 0, checked.out
