"""`leadline claims`: the list, one claim, a run, the page; and `leadline reproduce --list`."""

from __future__ import annotations

import json

import pytest

from leadline.claims import CLAIMS
from leadline.claims.ledger import Ledger, LedgerLine
from leadline.cli.screen.voice import Voice

NAME = "power-of-nine-tenths"
NUMBERS = {"vanishing": 2.656e-5, "exploding": 13780.6}


@pytest.fixture
def ledger(tmp_path):
    path = tmp_path / "own.jsonl"
    Ledger(path).add(
        LedgerLine("claim", NAME, 0, "c", 0.1, NUMBERS, time="2026-02-03T04:05:06+0000")
    )
    return path


def test_the_list_names_every_claim_with_its_verdict(leadline, ledger):
    done = leadline("claims", "--record", str(ledger), "--all")
    assert done.code == 0
    assert f"✓  {NAME}" in done.out
    assert "Residual algebra" in done.out
    assert f"not measured: {sum(e.measure is not None for _, e in CLAIMS.items()) - 1}" in done.out
    assert "own.jsonl: 1 seed, 2026-02-03" in done.out


def test_the_list_as_json_gives_id_note_verdict_and_numbers(leadline, ledger):
    done = leadline("claims", "--record", str(ledger), "--group", "algebra", "--json")
    told = json.loads(done.out)
    (one,) = [claim for claim in told["claims"] if claim["id"] == NAME]
    assert one["notes"] == ["shortcuts"]
    assert one["verdict"] == "holds"
    assert one["numbers"] == {key: [value] for key, value in NUMBERS.items()}
    assert {claim["group"] for claim in told["claims"]} == {"algebra"}
    assert told["measured"]["file"] == str(ledger)


@pytest.mark.parametrize(
    ("option", "value", "kept"),
    [
        ("--verdict", "holds", True),
        ("--verdict", "false as stated", False),
        ("--note", "shortcuts", True),
        ("--note", "card", False),
        ("--group", "algebra", True),
        ("--group", "norms", False),
    ],
)
def test_the_list_can_be_cut_down(leadline, ledger, option, value, kept):
    done = leadline("claims", "--record", str(ledger), option, value, "--json")
    names = [claim["id"] for claim in json.loads(done.out)["claims"]]
    assert (NAME in names) is kept


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--group", "norm"], "No group is called 'norm'. Did you mean 'norms'?"),
        (["--note", "cards"], "No note is called 'cards'. Did you mean 'card'?"),
        (["--verdict", "hold"], "No verdict is called 'hold'. Did you mean 'holds'?"),
        (["--record", "none.jsonl"], "There is no ledger none.jsonl"),
        (["--html", "page.txt"], "must end in .html"),
        (["run"], "Say which claims to measure"),
        (["run", "power-of-nine"], "No claim is called 'power-of-nine'"),
        (["run", NAME, "--all"], "--all is every claim"),
        (["run", "--group", "norm"], "No group is called 'norm'"),
        (["run", NAME, "--seeds", "0"], "--seeds is 0"),
        (["run", NAME, "--seed", "-1"], "--seed is -1"),
        (["run", NAME, "--workers", "0"], "0 processes cannot measure anything"),
        (["run", NAME, "--record", "nowhere/x.jsonl"], "does not exist"),
        (["show", "power-of-nine"], "Did you mean 'power-of-nine-tenths'?"),
        (["show", NAME, "--picture", "x.png"], "must end in .svg"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(leadline, tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    done = leadline("claims", *arguments)
    assert done.code == 2
    assert sentence in " ".join(done.err.split())


def test_one_claim_in_full(leadline, ledger, tmp_path):
    picture = tmp_path / "claim.svg"
    done = leadline("claims", "show", NAME, "--record", str(ledger), "--picture", str(picture))
    assert done.code == 0
    for text in ("0.9^100 ≈ 0.000026", "✓ holds", "2.66×10⁻⁵", "def power_of_nine_tenths("):
        assert text in done.out
    assert "The hundredth power of 0.9 is 2.66e-5" in " ".join(done.out.split())
    assert picture.read_text(encoding="utf-8").startswith("<svg")


def test_one_claim_as_json_has_the_code_that_measured_it(leadline, ledger):
    told = json.loads(leadline("claims", "show", NAME, "--record", str(ledger), "--json").out)
    assert told["code"].startswith("def power_of_nine_tenths(seed: int)")
    assert told["place"].startswith("leadline.claims.measure.products, line")
    assert [check["outcome"] for check in told["checks"]] == ["holds", "holds"]
    assert all(check["because"] for check in told["checks"])


def test_a_run_leaves_a_ledger_that_the_list_then_reads(leadline, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = leadline("claims", "run", NAME, "--workers", "1")
    assert done.code == 0
    assert "1 measured, 0 were in claims.jsonl already." in done.out
    assert "1 of 1 verdicts are those of this version." in done.out
    assert "Numbers of the ledger claims.jsonl" in leadline("claims", "--group", "algebra").out
    assert "0 measured, 1 were in" in leadline("claims", "run", NAME).out


def test_what_cannot_be_checked_is_not_said_to_be_measurable(leadline):
    assert "Nothing is measured for it" in leadline("claims", "show", "gpt4-layers").out


def test_the_page_is_one_file_that_asks_for_nothing(leadline, tmp_path):
    page = tmp_path / "claims.html"
    done = leadline("claims", "--group", "algebra", "--html", str(page))
    assert done.code == 0
    text = page.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    assert 'src="http' not in text
    assert f"Open {page} in a browser." in done.out


def test_the_experiments_are_listed_with_what_they_do_again(leadline):
    done = leadline("reproduce", "--list")
    assert done.code == 0
    for name, of in (
        ("attention-spectra", "figures 5, 6 and 7"),
        ("rank-collapse", "figure 8"),
        ("gradient-flow", "Pre- and Post-LN"),
        ("depth-limits", "depth tables"),
        ("learning-identity", "exercise"),
    ):
        (line,) = [line for line in done.out.splitlines() if line.startswith(f"  {name} ")]
        assert of in line
    told = json.loads(leadline("reproduce", "--list", "--json").out)
    assert [one["name"] for one in told["experiments"]][:2] == ["attention-spectra", "depth-laws"]


def test_depth_limits_is_the_sweep_of_that_name(monkeypatch):
    from leadline.cli import reproduce as command
    from leadline.lab.presets import PRESETS

    asked = {}
    monkeypatch.setattr(command, "sweep", lambda **given: asked.update(given))
    command.depth_limits(Voice(), quick=True, seeds=2)
    assert (asked["preset"], asked["quick"], asked["seeds"]) == ("depth-limits", True, 2)
    assert asked["preset"] in PRESETS
