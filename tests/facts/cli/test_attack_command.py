"""`leadline bounds --attack`: theorems under attack, from the command line."""

import io
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from leadline.errors import InputError
from leadline.instruments.attacks import attention as attacks
from leadline.instruments.attacks import collapse as collapse_attacks
from leadline.instruments.attacks.result import AttackRow, AttackTable
from leadline.instruments.attacks.run import attack_bounds
from leadline.record import Record
from leadline.theory import BOUNDS, COLLAPSE_BOUNDS

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
LAWS = {name for name, bound in COLLAPSE_BOUNDS.items() if bound.side == "law"}
EVERY = {*BOUNDS.names(), *COLLAPSE_BOUNDS.names(), "convergence", "convergence-as-written"} - LAWS


@pytest.fixture(autouse=True)
def short_climbs(monkeypatch):
    for module in (attacks, collapse_attacks):
        monkeypatch.setattr(module, "STEPS", 2)


def row(name="mine", **changes):
    facts = {"random": 40, "optimised": 2, "ratio": 0.5, "outside": 3, "outside_ratio": 0.1}
    return AttackRow(
        name=name, title="mine", statement="|A| <= 1", source="me", **{**facts, **changes}
    )


def table(*rows, **changes):
    asked = {"asked_random": 40, "asked_optimised": 2, "drawn": 100, "climbed": 9, "seed": 3}
    return AttackTable(rows=rows, **{**asked, **changes})


def shown(found, width=160):
    file = io.StringIO()
    found.screen().show(Console(file=file, width=width, force_terminal=True, _environ={}))
    return ESCAPE.sub("", file.getvalue())


@pytest.fixture(scope="module")
def found():
    with pytest.MonkeyPatch.context() as patch:
        for module in (attacks, collapse_attacks):
            patch.setattr(module, "STEPS", 2)
        return attack_bounds(attacks=200, optimised=8, seed=0)


def test_every_bound_is_attacked_and_holds(found):
    rows = {row.name: row for row in found.rows}
    assert set(rows) == EVERY
    assert set(found.laws) == LAWS
    assert not found.violated
    for name, one in rows.items():
        if "as-written" in name and name != "pre-norm-as-written":
            assert one.verdict == "refuted"
            assert (one.attacks, len(one.because)) == (0, 1)
            assert one.outside_ratio > 1
        else:
            assert one.verdict == "held"
            assert 0 < one.ratio <= 1 + 1e-9
    for name in (*BOUNDS.names(), *COLLAPSE_BOUNDS.names(), "convergence"):
        if name not in LAWS | {"skip-as-written", "product"}:
            assert rows[name].random >= 200
            assert rows[name].optimised >= 8


def test_counts_are_those_of_what_was_drawn(found):
    jobs = [
        job
        for campaign in (attacks.campaign, collapse_attacks.collapse_campaign)
        for job in campaign(attacks=200, optimised=8, seed=0)
    ]
    assert found.drawn == sum(job.count for job in jobs if not job.optimised)
    assert found.climbed == sum(job.count for job in jobs if job.optimised)
    rows = {row.name: row for row in found.rows}
    # Every attention matrix meets this one, and every network the bounds on collapse.
    assert rows["sqrt-queries"].random == sum(
        job.count for job in jobs if not job.optimised and job.what.startswith("attention")
    )
    proved = rows["collapse-proved"]
    assert proved.attacks + proved.outside == sum(
        job.count for job in jobs if "collapse" in job.what and "convergence" not in job.what
    )


def test_the_header_says_what_bounds_met(found):
    head = shown(found).splitlines()[1:3]
    assert "Every bound was to meet 200 random and 8 optimised networks" in " ".join(head)
    assert "which those marked false never do" in " ".join(head)
    for one in found.rows:
        assert ("(false)" in one.statement) is (one.attacks == 0)


def keys_of(value):
    if isinstance(value, list):
        return set().union(*map(keys_of, value))
    if not isinstance(value, dict):
        return set()
    return set(value).union(*map(keys_of, value.values()))


def test_every_key_of_the_json_is_documented(found):
    page = (Path(__file__).parents[3] / "docs" / "json.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`([^`\s]+)`", page.partition("## Bounds under attack")[2]))
    assert {"bounds", "laws", "outside", "climbed"} <= keys_of(found.to_json())
    assert keys_of(found.to_json()) - documented == set()


def test_false_statements_come_with_their_reason(found):
    text = shown(found)
    reason = next(line for line in text.splitlines() if line.startswith("  skip-as-written"))
    assert "the statement is false" in reason
    assert re.search(r"c = 0\.\d+, and with the first residual r = .* is not below 1", text)
    assert "collapse-causal-rate and collapse-cubic-law are not attacked" in text


def test_progress_runs_from_nothing_to_all():
    told = []
    attack_bounds(
        attacks=8,
        optimised=0,
        seed=0,
        names=["collapse-proved", "convergence"],
        progress=lambda *what: told.append(what),
    )
    assert told[0][1] == 0
    assert all(a[1] < b[1] for a, b in itertools.pairwise(told))
    assert all(done < total for _, done, total in told)
    assert told[0][0] == "drawing networks: rank collapse, one-head"


def test_one_bound_alone(leadline):
    said = leadline("bounds", "--attack", "--attacks", 30, "--optimised", 0, "--bound", "one")
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert "30 random and 0 optimised" in lines[1]
    assert [line.split()[0] for line in lines[1:] if "held" in line] == ["one"]


def test_json_stands_alone_and_repeats_by_seed(leadline):
    command = ("bounds", "--attack", "--attacks", 40, "--optimised", 4, "--json")
    chosen = ("--bound", "collapse-proved", "--bound", "skip-as-written")
    said = leadline(*command, *chosen)
    assert (said.code, said.err) == (0, "")
    data = json.loads(said.out)
    assert data["schema"] == 1
    assert data["violated"] is False
    assert data["attacks"]["random"] == 40
    assert data["attacks"]["optimised"] == 4
    assert data["seed"] == 0
    rows = {one["name"]: one for one in data["bounds"]}
    assert list(rows) == ["collapse-proved", "skip-as-written"]
    assert rows["collapse-proved"]["attacks"]["random"] >= 40
    assert rows["collapse-proved"]["facts"] is None
    assert rows["skip-as-written"]["ratio"] is None
    assert rows["skip-as-written"]["verdict"] == "refuted"
    assert json.loads(leadline(*command, *chosen).out) == data
    assert json.loads(leadline(*command, *chosen, "--seed", 1).out) != data


def test_quiet_says_nothing(leadline):
    said = leadline(
        "bounds", "--attack", "--attacks", 8, "--optimised", 0, "--bound", "collapse-proved", "-q"
    )
    assert (said.code, said.out, said.err) == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "No record was given; write `leadline bounds FILE.leadline`"),
        (["some.leadline", "--attack"], "--attack draws its own networks and takes no record"),
        (["--attack", "--layer", "2"], "--layer, --heads and --initial are about a record"),
        (["--attack", "--heads"], "--layer, --heads and --initial are about a record"),
        (["some.leadline", "--attacks", "5"], "belong to the search for violations"),
        (["some.leadline", "--seed", "5"], "belong to the search for violations"),
        (["--attack", "--attacks", "0", "--optimised", "0"], "0 random and 0 optimised"),
        (["--attack", "--attacks", "-3"], "-3 random and 200 optimised"),
        (["--attack", "--bound", "collapse-prooved"], "Did you mean 'collapse-proved'"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(leadline, arguments, sentence):
    said = leadline("bounds", *arguments)
    assert said.code == 2
    assert sentence in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_no_attack_at_all_is_refused():
    with pytest.raises(InputError, match="at least one"):
        attack_bounds(attacks=0, optimised=0, seed=0)


PLUGIN = '''"""False bounds."""
from leadline.theory import BOUNDS, Bound, COLLAPSE_BOUNDS
@BOUNDS.register("too-small")
class TooSmall(Bound):
    """A hundredth of the truth."""
    title, statement, source = "too small", "|A| <= 0.01 sqrt n", "nobody"
    def conditions(self, facts): return []
    def value(self, facts): return 0.01 * facts.queries ** 0.5
Proved = COLLAPSE_BOUNDS.get("collapse-proved")
@COLLAPSE_BOUNDS.register("collapse-too-fast")
class TooFast(Proved):
    """A hundredth of the proved constant."""
    title, statement, source = "too fast", "r' <= 0.02 ... r^3", "nobody"
    def log10_gamma(self, facts, layer): return super().log10_gamma(facts, layer) - 2.0
'''


def test_a_false_bound_of_a_plugin_is_caught(tmp_path):
    # In another process: a catalog keeps what a plug-in put into it.
    plugin = tmp_path / "false.py"
    plugin.write_text(PLUGIN)
    command = [sys.executable, "-m", "leadline.cli.main", "bounds", "--attack"]
    command += ["--attacks", "40", "--optimised", "0", "--plugin", str(plugin), "--json"]
    command += ["--bound", "too-small", "--bound", "collapse-too-fast", "--bound", "one"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    data = json.loads(done.stdout)
    assert data["violated"] is True
    rows = {one["name"]: one for one in data["bounds"]}
    # The violated ones come first.
    assert [one["name"] for one in data["bounds"]] == ["collapse-too-fast", "too-small", "one"]
    for name in ("collapse-too-fast", "too-small"):
        assert rows[name]["verdict"] == "VIOLATED"
        assert rows[name]["ratio"] > 10
        assert rows[name]["facts"]
    assert rows["one"]["verdict"] == "held"


# --- the table --------------------------------------------------------------------------------


def test_verdicts_are_told_apart():
    assert row().verdict == "held"
    assert row(ratio=1.0 + 2e-9).verdict == "VIOLATED"
    assert row(ratio=1.0 + 5e-10).verdict == "held"
    assert row(ratio=float("nan")).verdict == "VIOLATED"
    none = {"random": 0, "optimised": 0, "ratio": 0.0}
    assert row(**none).verdict == "not met"
    assert row(**none, outside_ratio=2.0, because=("a", "b")).verdict == "not met"
    assert row(**none, outside_ratio=2.0, because=("a",)).verdict == "refuted"


def test_a_violation_is_told_first_and_in_red():
    broken = table(row("bad", ratio=3.0, facts={"tokens": 2}), row("good"))
    assert broken.violated
    text = shown(broken)
    told = next(line for line in text.splitlines() if "VIOLATED" in line)
    assert told.startswith("VIOLATED: bad, |A| <= 1: 3 times what it allows")
    file = io.StringIO()
    broken.screen().show(Console(file=file, width=160, force_terminal=True, _environ={}))
    assert "\x1b[1;31mVIOLATED: bad" in file.getvalue()
    assert broken.to_json()["bounds"][0]["facts"] == {"tokens": 2}
    assert broken.to_json()["bounds"][1]["facts"] is None


def test_ratios_just_below_one_do_not_read_as_one():
    text = shown(table(row("near", ratio=0.99999), row("far", ratio=0.7071), row("at", ratio=1.0)))
    cells = {line.split()[0]: line.split() for line in text.splitlines() if "held" in line}
    assert [cells[name][-3] for name in ("near", "far", "at")] == ["<1", "0.7071", "1"]


def test_an_infinite_ratio_is_told_in_words_and_as_strict_json():
    found = table(row(outside_ratio=float("inf"), because=("the mask is causal",)))
    assert "mine, beyond any factor: the mask is causal." in shown(found)
    assert found.to_json()["bounds"][0]["outside"]["ratio"] == "Infinity"


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_the_table_fits_the_terminal(found, width):
    lines = shown(found, width).splitlines()
    assert max(len(line) for line in lines) <= width
    for one in found.rows:
        assert any(line.startswith(one.name) for line in lines)


def test_nothing_but_laws_is_told_as_such():
    found = table(laws=("collapse-cubic-law",))
    assert "collapse-cubic-law is not attacked: a law" in shown(found)


# --- the record -------------------------------------------------------------------------------


def test_the_search_is_kept_and_its_page_written(leadline, tmp_path):
    file, page = tmp_path / "attacks.leadline", tmp_path / "page.html"
    command = ("bounds", "--attack", "--attacks", 8, "--optimised", 0, "--bound", "one")
    said = leadline(*command, "-o", file, "--html", page)
    assert said.code == 0
    assert said.out.startswith("No bound is violated: 1 held")
    assert f"The record is in {file}" in said.out and page.exists()
    with Record.open(file) as record:
        table = json.loads(leadline(*command, "--json").out)
        assert record.attacks.to_json() == table


def test_the_first_screen_has_fifteen_bounds_and_all_has_every_one(leadline):
    command = ("bounds", "--attack", "--attacks", 2, "--optimised", 0)
    first, every = leadline(*command).out, leadline(*command, "--all").out
    counts = [sum(" held" in line for line in text.splitlines()[1:]) for text in (first, every)]
    assert counts[0] <= 15 < counts[1]
    assert "that came nearest; --all" in first and "--all" not in every


def test_outputs_of_a_record_are_refused(leadline, tmp_path):
    said = leadline("bounds", "some.leadline", "-o", tmp_path / "other.leadline")
    assert said.code == 2 and "some.leadline is a record already; --html" in said.err
