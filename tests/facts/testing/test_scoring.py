"""How diagnoses are scored: outcomes made by hand, with shares counted on paper."""

from __future__ import annotations

import pytest

from leadline.reading.diagnosis.diagnosis import Coverage, Diagnosis
from leadline.record import Finding, Record
from leadline.testing.faults.scoring import (
    FaultOutcome,
    Share,
    judge,
    read_outcomes,
    score,
    write_outcome,
)


def outcome(causes, layers, *named, places=None):
    where = tuple(places) if places is not None else ((),) * len(named)
    return FaultOutcome("case", "fault", "host", tuple(causes), tuple(layers), tuple(named), where)


RIGHT = outcome(["weights-zero"], [3], "weights-zero", "write-dead", places=[(3,), (3,)])
SECOND = outcome(["weights-zero"], [3], "write-dead", "weights-zero", places=[(3,), (3, 4)])
OTHER = outcome(["weights-zero"], [], "write-dead")
MISSED = outcome(["weights-zero"], [2])
CALM = outcome([], [])
ALARM = outcome([], [], "weights-zero")


def test_shares_are_those_counted_by_hand():
    shares = {
        one.name: (one.hits, one.trials)
        for one in score([RIGHT, SECOND, OTHER, MISSED, CALM, ALARM])
    }
    assert shares == {
        "detected": (3, 4),
        "right cause first": (1, 4),
        "right cause among the findings": (2, 4),
        "place right": (1, 3),  # of RIGHT, SECOND and MISSED, whose answers have layers
        "precision": (1, 4),  # four cases have a first finding, the healthy one with an alarm too
        "healthy models with an alarm": (1, 2),
    }


@pytest.mark.parametrize(
    ("one", "place"), [(RIGHT, True), (SECOND, False), (OTHER, None), (MISSED, None)]
)
def test_a_place_is_right_where_no_other_layer_is_named(one, place):
    assert one.place is place


def test_an_interval_is_that_of_clopper_and_pearson():
    # 0 of 10: the upper end is 1 - 0.025^(1/10). 10 of 10: the lower end is 0.025^(1/10).
    low, high = Share("s", 0, 10).interval
    assert (low, high) == (0.0, pytest.approx(1 - 0.025**0.1, abs=1e-6))
    low, high = Share("s", 10, 10).interval
    assert (low, high) == (pytest.approx(0.025**0.1, abs=1e-6), 1.0)
    assert str(Share("found", 10, 10)).startswith("found: 10 of 10, 1.000 (0.692 to 1.000)")


def diagnosis(*named):
    found = tuple(
        Finding(f"{name}.", severity=severity, code="Z01", name=name, details={"layers": [2]})
        for name, severity in named
    )
    return Diagnosis(found, Coverage((), ()), Record())


def test_notes_count_only_where_the_answer_is_a_note():
    made = diagnosis(("weights-zero", "serious"), ("attention-sinks", "note"))
    common = {"layers": [2], "diagnose": lambda: made}
    assert judge("c", "f", "h", causes=["weights-zero"], **common).named == ("weights-zero",)
    both = judge("c", "f", "h", causes=["attention-sinks"], **common)
    assert both.named == ("weights-zero", "attention-sinks")
    assert both.places == ((2,), (2,)) and both.verdict == "weights-zero."


def test_a_diagnosis_that_fails_has_found_nothing_and_says_why():
    def fail():
        raise ValueError("no such layer")

    one = judge("c", "f", "h", causes=["weights-zero"], layers=[1], diagnose=fail)
    assert not one.detected and one.error == "ValueError: no such layer"
    assert {share.name: share.hits for share in score([one])}["detected"] == 0


def test_outcomes_survive_their_file(tmp_path):
    path = tmp_path / "outcomes.jsonl"
    assert read_outcomes(path) == []
    for one in (RIGHT, CALM):
        write_outcome(path, one)
    assert read_outcomes(path) == [RIGHT, CALM]
