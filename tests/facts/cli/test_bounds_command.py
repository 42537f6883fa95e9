"""`leadline bounds`, and the shelf of bounds."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from leadline.reading.bounds.evaluate import bounds
from leadline.record import Reading, Record, Site
from leadline.theory import BOUNDS
from tests.synthetic import gpt2_record
from tests.synthetic_attention import attention_record

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
NORM = "attention.spectral_norm"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("records")
    attention_record(layers=3, heads=2, tokens=8).save(path / "fine.leadline")
    gpt2_record().save(path / "plain.leadline")
    broken = attention_record(layers=3, heads=2, tokens=8)
    place = Site("decoder", 2, 1, "attention", head=1)
    broken.append([Reading(NORM, place, "max", 7.0, lower=6.9, upper=7.1, seed=1)])
    broken.save(path / "broken.leadline")
    return path


@pytest.fixture
def fine(folder):
    return folder / "fine.leadline"


def on_terminal(table, width, *, heads=False):
    file = io.StringIO()
    console = Console(
        file=file, width=width, force_terminal=True, color_system="standard", _environ={}
    )
    table.screen(heads=heads, everything=True).show(console)
    return file.getvalue()


def test_every_bound_is_printed_with_its_statement(leadline, fine):
    said = leadline("bounds", fine, "--all")
    assert said.code == 0
    assert said.err == ""
    rows = {line.split()[0]: line for line in said.out.splitlines() if line}
    for name, bound in BOUNDS.items():
        assert bound.statement in rows[name]
    assert "6 of 6 heads" in rows["column-sum"]
    assert "3 of 3 layers" in rows["product"]


def test_the_pipe_gets_what_print_shows(leadline, fine):
    with Record.open(fine) as record:
        assert leadline("bounds", fine).out == f"{bounds(record)}\n"


def test_json_stands_alone(leadline, fine):
    said = leadline("bounds", fine, "--json")
    assert (said.code, said.err) == (0, "")
    data = json.loads(said.out)
    rows = {bound["name"]: len(bound["rows"]) for bound in data["bounds"]}
    assert rows == {name: 3 if name == "product" else 6 for name in BOUNDS.names()}


def test_html_writes_the_page_with_the_bounds(leadline, fine, tmp_path):
    said = leadline("bounds", fine, "--html", tmp_path / "page.html")
    assert said.code == 0 and said.out.endswith(f"The report is in {tmp_path / 'page.html'}\n")
    assert "column-sum" in (tmp_path / "page.html").read_text(encoding="utf-8")
    refused = leadline("bounds", fine, "-o", tmp_path / "other.leadline")
    assert refused.code == 2 and "--html FILE.html" in refused.err


def keys_of(value):
    if isinstance(value, list):
        return set().union(*map(keys_of, value))
    if not isinstance(value, dict):
        return set()
    return set(value).union(*map(keys_of, value.values()))


def test_every_key_of_the_json_is_documented(leadline, fine):
    page = (Path(__file__).parents[3] / "docs" / "json.md").read_text(encoding="utf-8")
    bounds_part = page.partition("## Bounds")[2]
    documented = set(re.findall(r"`([^`\s]+)`", bounds_part))
    found = keys_of(json.loads(leadline("bounds", fine, "--json").out))
    assert {"bounds", "rows", "because", "closest"} <= found
    assert found - documented == set()


def test_one_bound_alone_or_several(leadline, fine):
    data = json.loads(leadline("bounds", fine, "--bound", "one", "--json").out)
    assert [bound["name"] for bound in data["bounds"]] == ["one"]
    both = leadline("bounds", fine, "--bound", "one", "--bound", "column-sum", "--json").out
    assert {bound["name"] for bound in json.loads(both)["bounds"]} == {"one", "column-sum"}


def test_a_layer_shows_its_heads_and_heads_shows_all(leadline, fine):
    of_layer = leadline("bounds", fine, "--layer", 2, "--bound", "column-sum").out
    rows = [line for line in of_layer.splitlines() if line.startswith("layer ")]
    assert [row.partition("  ")[0] for row in rows] == ["layer 2 head 1", "layer 2 head 2"]
    with Record.open(fine) as record:
        expected = bounds(record, names=["column-sum"], layer=2).bounds[0].rows[0]
    cells = rows[0].split()
    assert float(cells[5]) == pytest.approx(expected.predicted, rel=1e-3)
    assert float(cells[6]) == pytest.approx(expected.measured, rel=1e-3)
    assert cells[-1] == "yes"
    every = leadline("bounds", fine, "--heads", "--bound", "column-sum").out
    assert sum(line.startswith("layer ") for line in every.splitlines()) == 6


def test_what_is_known_of_one_head_stands_together(leadline, fine):
    every = leadline("bounds", fine, "--heads", "--bound", "one", "--bound", "column-sum").out
    rows = [line.split()[:5] for line in every.splitlines() if line.startswith("layer ")]
    assert rows[:3] == [
        ["layer", "1", "head", "1", "column-sum"],
        ["layer", "1", "head", "1", "one"],
        ["layer", "1", "head", "2", "column-sum"],
    ]


def test_quiet_says_nothing(leadline, folder):
    fine, broken = (
        leadline("bounds", folder / name, "--quiet")
        for name in ("fine.leadline", "broken.leadline")
    )
    assert (fine.code, fine.out, fine.err) == (0, "", "")
    assert (broken.code, broken.out, broken.err) == (1, "", "")


def test_a_violated_bound_is_told_first_and_ends_with_one(leadline, folder):
    said = leadline("bounds", folder / "broken.leadline")
    assert said.code == 1
    told = said.out.splitlines()[2]
    assert told.startswith("VIOLATED: ")
    assert "at layer 2 head 1" in told
    assert json.loads(leadline("bounds", folder / "broken.leadline", "--json").out)["violated"]
    with Record.open(folder / "broken.leadline") as record:
        table = bounds(record)
    assert "\x1b[1;31mVIOLATED: " in on_terminal(table, 120)
    heads = on_terminal(table, 120, heads=True)
    assert "VIOLATED" in next(
        line for line in heads.splitlines() if line.startswith("\x1b[1;31mlayer 2 head 1")
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["{plain}"], "holds neither attention readings nor composite residuals"),
        (["{plain}"], "`leadline measure MODEL --probes attention`"),
        (["{plain}"], "`--probes tokens,residual,collapse`"),
        (
            ["{plain}", "--bound", "one"],
            "no attention readings, and these bounds are about attention",
        ),
        (["{fine}", "--layer", "9"], "Layer 9 has no attention readings in this record"),
        (["{fine}", "--bound", "columnsum"], "Did you mean 'column-sum'?"),
        (["{nothing}"], "no such file"),
    ],
)
def test_what_cannot_be_answered_is_one_sentence(leadline, folder, arguments, sentence):
    paths = {name: folder / f"{name}.leadline" for name in ("plain", "fine", "nothing")}
    said = leadline("bounds", *(argument.format(**paths) for argument in arguments))
    assert said.code == 2
    assert sentence in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


@pytest.mark.parametrize("width", [60, 80, 120, 160, 200])
@pytest.mark.parametrize("heads", [False, True])
def test_the_table_fits_the_terminal(fine, width, heads):
    with Record.open(fine) as record:
        table = bounds(record)
    lines = ESCAPE.sub("", on_terminal(table, width, heads=heads)).splitlines()
    assert max(len(line) for line in lines) <= width
    assert "…" not in "".join(lines)
    for bound in table.bounds:
        assert any(bound.name in line for line in lines)


@pytest.mark.parametrize(("width", "shown"), [(80, False), (120, True)])
def test_the_certified_interval_is_shown_where_there_is_room(fine, width, shown):
    with Record.open(fine) as record:
        table = bounds(record, layer=1)
    text = on_terminal(table, width, heads=True)
    row = next(row for bound in table.bounds for row in bound.rows if row.lower is not None)
    assert ("certified" in text) is shown
    assert (f"[{row.lower:.7g}, {row.upper:.7g}]" in text) is shown


def test_a_narrow_terminal_has_no_room_for_statements_and_says_where_they_are(leadline, fine):
    with Record.open(fine) as record:
        table = bounds(record, names=["sqrt-queries"])
    statement = table.bounds[0].statement
    assert statement not in ESCAPE.sub("", on_terminal(table, 60))
    assert statement in ESCAPE.sub("", on_terminal(table, 160))
    assert "`leadline explain NAME`" in leadline("bounds", fine).out


def test_bounds_are_listed_and_explained(leadline):
    listed = leadline("list", "bounds")
    assert listed.code == 0
    for name, bound in BOUNDS.items():
        assert f"  {name} " in listed.out
        assert bound.title in listed.out
    facts = json.loads(leadline("explain", "column-sum", "--json").out)["bounds"]["facts"]
    bound = BOUNDS.get("column-sum")
    assert list(facts) == ["statement", "source", "side", "quantity", "place"]
    assert (facts["statement"], facts["side"]) == (bound.statement, "upper")
    assert (facts["source"], facts["quantity"]) == (bound.source, NORM)
    assert "column-sum (bound)" in leadline("explain", "column-sum").out


def test_a_plugin_brings_its_own_bound(fine, tmp_path):
    # In another process: a catalog keeps what a plug-in put into it.
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        '"""A bound of my own."""\n'
        "from leadline.theory import BOUNDS, Bound\n"
        "@BOUNDS.register('mine')\n"
        "class Mine(Bound):\n"
        "    '''At most a thousand.'''\n"
        "    title, statement, source = 'mine', '|A| <= 1000', 'me'\n"
        "    def conditions(self, facts): return []\n"
        "    def value(self, facts): return 1000.0\n"
    )
    command = ["bounds", str(fine), "--bound", "mine", "--plugin", str(plugin)]
    script = (
        "import sys; from leadline.cli.main import run\n"
        f"try: run({command!r})\n"
        "except SystemExit as left: assert not left.code, left.code\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "COLUMNS": "120"},  # wide enough for the statement in the table
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"6 of 6 heads +1000 .*\|A\| <= 1000", done.stdout)
