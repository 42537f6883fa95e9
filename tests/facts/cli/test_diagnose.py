"""`leadline diagnose`: the answer, the files it writes, its exit codes, and what bad input gets."""

import json

import pytest

from leadline.record import Record
from tests.synthetic_diagnosis import record_of, trial_rules

__all__ = ["trial_rules"]
pytestmark = pytest.mark.usefixtures("trial_rules")

TINY = ["--recipe", "default", "--set=depth=2", "--set=width=16", "--set=heads=2"]
TINY += ["--set=vocabulary=50", "--random", "2x8"]


@pytest.fixture
def sick(tmp_path):
    path = tmp_path / "sick.leadline"
    record_of(1, 0, 60, 1).save(path)
    return path


@pytest.fixture
def healthy(tmp_path):
    path = tmp_path / "healthy.leadline"
    record_of(1, 1, 1).save(path)
    return path


def test_a_record_is_diagnosed_with_the_answer_first(leadline, sick):
    said = leadline("diagnose", sick)
    assert said.code == 0, said.err
    assert said.out.startswith("tiny: 1 serious finding, 1 warning and 1 note.\n")
    assert "The mlp of decoder layer 2 writes nothing." in said.out
    assert "`leadline explain Z01` tells more of a rule" in said.out


def test_a_model_is_visited_saved_and_shown(leadline, tmp_path):
    record, page, log = (tmp_path / name for name in ("a.leadline", "a.html", "a.sarif"))
    said = leadline("diagnose", *TINY, "-o", record, "--html", page, "--sarif", log)
    assert said.code == 0, said.err
    assert said.out.startswith("Nothing unusual in ")
    for what, path in (("record", record), ("report", page), ("SARIF log", log)):
        assert f"The {what} is in {path}" in said.out
    assert "visit" in Record.open(record).provenance
    assert json.loads(log.read_text())["runs"][0]["results"] is not None
    assert "rules looked" in page.read_text()
    again = leadline("diagnose", record)
    assert again.code == 0 and again.out.startswith("Nothing unusual in ")


def test_json_stands_alone(leadline, sick):
    said = leadline("diagnose", sick, "--json")
    found = json.loads(said.out)
    assert [finding["code"] for finding in found["findings"]] == ["Z01", "Z02", "Y01"]
    assert said.err == "" and "remedies" not in found


def test_quiet_prints_nothing_and_still_fails(leadline, sick):
    said = leadline("diagnose", sick, "--quiet", "--fail-on", "serious")
    assert (said.code, said.out, said.err) == (1, "", "")


@pytest.mark.parametrize(
    ("severity", "ignore", "code"),
    [
        ("serious", "", 1),
        ("warning", "Z01", 1),
        ("serious", "Z01", 0),
        ("warning", "Z", 0),
        ("note", "Z01,trial-odd", 1),
        ("note", "Z,Y01", 2),  # the one rule that is left cannot look
    ],
)
def test_fail_on_decides_the_exit_code(leadline, sick, severity, ignore, code):
    chosen = ["--ignore", ignore] if ignore else []
    assert leadline("diagnose", sick, "--fail-on", severity, *chosen).code == code


def test_a_healthy_record_passes_every_gate(leadline, healthy):
    assert leadline("diagnose", healthy, "--fail-on", "note").code == 0


def test_statistics_count_by_rule(leadline, sick):
    lines = leadline("diagnose", sick, "--statistics").out.splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["count", "code", "rule"],
        ["1", "Y01", "trial-note"],
        ["1", "Z01", "trial-dead"],
        ["1", "Z02", "trial-odd"],
    ]


def test_selected_rules_look_alone(leadline, sick):
    said = leadline("diagnose", sick, "--select", "Y01")
    assert said.out.startswith("Nothing unusual in tiny: 1 rule looked")
    assert "3 rules left out by choice." in said.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--select", "Z0l"], ["No rule is called 'Z0l'", "Did you mean 'Z0"]),
        (["--ignore", "trial-ded"], ["Did you mean 'trial-dead'"]),
        (["--fail-on", "bad"], ["--fail-on", "bad", "serious"]),
        (["--select", "Y02"], ["Y02 cannot look", "nothing.like_this", "leadline diagnose MODEL"]),
        (["--apply"], ["--apply needs the model"]),
        (["--train", "5"], ["--train needs the model"]),
        (["--text", "The sea."], ["is a record"]),
        (["--html", "page.txt"], ["must end in .html"]),
        (["--sarif", "no/such/folder/x.sarif"], ["does not exist"]),
        (["--sarif", "model.py"], ["does not end in .sarif or .json"]),
        (["--reference", "nowhere.leadline"], ["nowhere.leadline"]),
    ],
)
def test_bad_input_is_answered_with_a_sentence(leadline, sick, arguments, words):
    said = leadline("diagnose", sick, *arguments)
    assert said.code == 2 and said.out == ""
    assert all(word in said.err for word in words), said.err


def test_a_log_is_not_written_over_what_is_no_log(leadline, sick, tmp_path):
    settings = tmp_path / "config.json"
    settings.write_text("{}")
    said = leadline("diagnose", sick, "--sarif", settings)
    assert said.code == 2 and "exists and is no SARIF log" in said.err
    assert settings.read_text() == "{}"


def test_nothing_to_diagnose_is_said(leadline):
    said = leadline("diagnose")
    assert said.code == 2 and "Name a MODEL" in said.err


def test_a_record_of_something_else_says_what_to_measure(leadline, tmp_path):
    path = tmp_path / "empty.leadline"
    empty = Record()
    empty.note("model", {"name": "x"})
    empty.save(path)
    said = leadline("diagnose", path)
    assert said.code == 2
    assert "None of 4 rules can look" in said.err and "leadline diagnose MODEL -o FILE" in said.err


def test_apply_without_a_fault_says_so(leadline):
    said = leadline("diagnose", *TINY, "--apply")
    assert said.code == 2 and "nothing to apply" in said.err


def test_report_and_print_of_a_saved_record_begin_with_its_findings(leadline, sick):
    said = leadline("report", sick)
    assert said.out.splitlines()[1] == "serious: Z01: The mlp of decoder layer 2 writes nothing."
    said = leadline("compare", sick, sick, "--names", "a,b")
    assert "b: serious: Z01: " in said.out


# ---- explain and list ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Z01", "z01", "trial-dead"])
def test_a_rule_is_explained_by_code_and_by_name(leadline, name):
    lines = leadline("explain", name).out.splitlines()
    assert lines[0] == "Z01 trial-dead (rule)"
    titles = ["What it looks for", "Why it is bad", "What it is not", "Example"]
    titles += ["Known false alarms", "Remedy", "Severity", "Needs", "Explains", "Sources"]
    assert [line for line in lines if line in titles] == titles
    assert lines[lines.index("Why it is bad") + 1] == "It does nothing."


def test_an_unknown_code_is_near_to_codes(leadline):
    said = leadline("explain", "Z07")
    assert said.code == 2 and "Nothing is called 'Z07'. Did you mean 'Z0" in said.err


def test_rules_are_listed_with_their_codes(leadline):
    said = leadline("list", "rules")
    assert [line.split()[:2] for line in said.out.splitlines()[1:5]] == [
        ["Y01", "trial-note"], ["Y02", "trial-blind"], ["Z01", "trial-dead"], ["Z02", "trial-odd"],
    ]  # fmt: skip
    found = json.loads(leadline("list", "rules", "--json").out)["rules"]
    assert found[2] == {"name": "trial-dead", "summary": "A write that is zero.", "code": "Z01"}


@pytest.mark.parametrize("name", ["rank-collapse", "Rank collapse", "vanishing-gradient", "twin"])
def test_concepts_are_explained(leadline, name):
    said = leadline("explain", name)
    assert said.code == 0 and "(concept)" in said.out
