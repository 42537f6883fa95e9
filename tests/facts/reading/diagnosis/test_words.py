"""What a diagnosis says: the answer first, findings in full, notes in a line, and what did not look."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from leadline.errors import RecordError, UnknownName
from leadline.reading.diagnosis.diagnosis import ask_rules, choose_rules, diagnose_record
from leadline.reading.diagnosis.words import (
    evidence_text,
    layers_text,
    number_text,
    place_text,
    statistics_table,
)
from leadline.record import Finding
from tests.synthetic_diagnosis import record_of, trial_rules

__all__ = ["trial_rules"]
pytestmark = pytest.mark.usefixtures("trial_rules")


def shown(diagnosis, width=80, **options):
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=True, color_system=None)
    diagnosis.screen(**options).show(console)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_a_sick_record_is_counted_and_then_told():
    diagnosis = diagnose_record(record_of(1, 0, 60, 1))
    assert not diagnosis.healthy
    assert diagnosis.answer == [
        "tiny: 1 serious finding, 1 warning and 1 note.",
        "The mlp of decoder layer 2 writes nothing.",
    ]
    lines = shown(diagnosis)
    assert lines[0] == diagnosis.answer[0]
    assert lines[2:9] == [
        "serious: Z01 trial-dead, decoder layer 2, mlp",
        "  The mlp of decoder layer 2 writes nothing.",
        "  shows   norm of the update: 0, expected 2 (the nearest layers)",
        "  not it  a design that starts at zero: other layers write",
        "  cause   Its weights are zero.",
        "  do      Load the weights again.",
        "",
    ]
    assert "note: Y01 trial-note: Some update is larger than 3." in lines
    assert "3 rules looked. 1 rule could not look:" in lines
    assert "  Y02: the record has no nothing.like_this" in lines


def test_every_rule_is_counted_and_what_an_option_would_do_is_told_last():
    reasons = ["no run was asked for", "no twin", "no lanes", "no text", "no twin"]
    could_not = tuple((f"Q0{at}", why) for at, why in enumerate(reasons))
    healthy = diagnose_record(record_of(1, 1, 1))
    short = replace(healthy, coverage=replace(healthy.coverage, could_not=could_not))
    lines = shown(short)
    at = lines.index("5 rules could not look:")
    told = ["  Q01, Q04: no twin", "  Q02: no lanes", "  Q03: no text"]
    assert lines[at + 1 : at + 5] == [*told, "  1 more reason: --all"]
    lines = shown(short, everything=True)
    assert lines[lines.index("5 rules could not look:") + 1 :][:4] == [
        *told, "  Q00: no run was asked for",
    ]  # fmt: skip


def test_what_only_a_visit_measures_is_one_reason_of_a_record_without_one():
    reasons = [*(f"the record has no fact_{at}" for at in range(4)), "no lanes"]
    could_not = tuple((f"Q0{at}", why) for at, why in enumerate(reasons))
    plain = diagnose_record(record_of(1, 1, 1))
    plain = replace(plain, coverage=replace(plain.coverage, could_not=could_not))
    lines = shown(plain)
    assert lines[lines.index("5 rules could not look:") + 1 :] == [
        "  4 rules: the record does not hold what they need; `leadline diagnose MODEL`",
        "    measures it",
        "  Q04: no lanes",
    ]
    assert "  Q02: the record has no fact_2" in shown(plain, everything=True)
    plain.record.note("visit", {"could_not": {}})
    assert "  Q00: the record has no fact_0" in shown(plain)


def test_what_follows_from_a_finding_is_told_apart():
    diagnosis = diagnose_record(record_of(1, 0, 1, 1))
    assert [finding.code for finding in diagnosis.findings] == ["Z01"]
    assert [(code, finding.code) for code, finding in diagnosis.explained] == [("Z01", "Z02")]
    assert not any("follows from" in line for line in shown(diagnosis))
    assert any(line.startswith("follows from Z01") for line in shown(diagnosis, everything=True))
    assert "follows from Z01" in diagnosis.in_full()


def test_a_healthy_record_is_called_so_with_its_notes():
    quiet = diagnose_record(record_of(1, 1, 1))
    assert quiet.healthy
    assert quiet.answer == ["Nothing unusual in tiny: 3 rules looked and found no fault."]
    noted = diagnose_record(record_of(1, 4, 1))
    assert noted.healthy and not noted.worse_than("warning") and noted.worse_than("note")
    assert noted.answer[0].endswith("1 note below, usually benign.")


def test_lines_that_a_terminal_breaks_are_indented_below_their_text():
    lines = shown(diagnose_record(record_of(1, 0, 1)), width=40)
    at = lines.index("  shows   norm of the update: 0,")
    assert lines[at + 1] == "          expected 2 (the nearest"
    assert all(len(line) <= 40 for line in lines)


def test_a_cause_that_is_not_certain_says_so():
    assert "  cause   (likely) Its weights are large." in shown(diagnose_record(record_of(1, 60)))


def test_json_is_strict_and_has_every_public_field():
    found = json.loads(json.dumps(diagnose_record(record_of(1, 0, 60)).to_json(), allow_nan=False))
    assert found["schema"] == 1 and found["healthy"] is False
    assert found["statistics"] == {"Z01": 1, "Z02": 1, "Y01": 1}
    first = found["findings"][0]
    assert first["code"] == "Z01" and first["name"] == "trial-dead"
    assert first["layers"] == [2] and first["stack"] == "decoder" and first["sublayer"] == "mlp"
    assert first["parameter"] == "blocks.1.mlp" and first["confidence"] == "certain"
    assert first["evidence"][0] == {
        "what": "norm of the update", "value": 0.0, "expected": 2.0, "source": "the nearest layers",
    }  # fmt: skip
    assert first["remedy"]["edit"]["edit"] == "redraw-tensor" and first["remedy"]["safe"] is False
    assert found["explained"][0]["explained_by"] == "Z01"
    assert found["coverage"]["could_not"] == [
        {"code": "Y02", "why": "the record has no nothing.like_this"}
    ]


def test_rules_are_selected_and_ignored_by_code_name_and_letter():
    assert [one.code for one in choose_rules(["Z"], [])[0]] == ["Z01", "Z02"]
    assert [one.code for one in choose_rules([], ["trial-dead", "y"])[0]] == ["Z02"]
    diagnosis = diagnose_record(record_of(1, 0, 60), ignore=["Z01"])
    assert {finding.code for finding in diagnosis.findings} == {"Z02", "Y01"}
    assert diagnosis.coverage.ignored == ("Z01",)
    with pytest.raises(UnknownName, match=r"No rule is called 'Z1'\. Did you mean 'Z0[12]'"):
        choose_rules(["Z1"], [])
    with pytest.raises(UnknownName, match=r"^No rule is called 'z99'\. Known: Z01, Z02\.$"):
        choose_rules(["z99"], [])
    with pytest.raises(UnknownName, match=r"'Q01'.*Known: Y01, Y02, Z01, Z02, trial-blind"):
        choose_rules([], ["Q01"])


def test_a_record_that_no_rule_can_look_at_is_refused_with_what_to_measure():
    with pytest.raises(RecordError, match=r"Y02 cannot look: .*nothing.like_this.*diagnose MODEL"):
        diagnose_record(record_of(1), select=["Y02"])
    assert ask_rules(record_of(1), select=["Y02"]).coverage.looked == ()


def test_statistics_count_findings_by_rule():
    table = statistics_table(diagnose_record(record_of(0, 0, 60)))
    assert [row.cells for row in table.rows] == [
        ("2", "Z01", "trial-dead"), ("1", "Y01", "trial-note"), ("1", "Z02", "trial-odd"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("layers", "depth", "words"),
    [
        ([], 0, ""),
        ([3], 12, "layer 3"),
        ([2, 3, 4, 5], 12, "layers 2 to 5"),
        ([1, 4], 12, "layers 1 and 4"),
        ([1, 2, 5, 6, 7], 12, "layers 1, 2 and 5 to 7"),
        ([1, 2, 3], 3, "all 3 layers"),
    ],
)
def test_layers_in_words(layers, depth, words):
    assert layers_text(layers, depth) == words


def test_places_numbers_and_evidence_in_words():
    whole = Finding("x", details={"parameter": "lm_head.weight"})
    assert place_text(whole) == "lm_head.weight"
    head = Finding(
        "x", details={"stack": "decoder", "layers": [2], "sublayer": "attention", "head": 3}
    )
    assert place_text(head) == "decoder layer 2, attention, head 3"
    assert [number_text(x) for x in (0.0, 12.0, 0.02345, 65504.0, 1.5e9, "half", 3, True)] == [
        "0", "12", "0.0234", "65504", "1.5e+09", "half", "3", "True",
    ]  # fmt: skip
    assert number_text(float("inf")) == "inf" and number_text(float("nan")) == "nan"
    assert evidence_text({"what": "loss", "value": 3.5}) == "loss: 3.5"
