"""What the record of a watched run answers first."""

from __future__ import annotations

import pytest

from leadline.record import Finding, Record
from leadline.record.views import written_by
from leadline.record.words.answer import answer
from leadline.record.words.watch_answer import count_warnings, warning_place, watch_answer
from tests.synthetic_watch import (
    Course,
    begin,
    note_progress,
    readings,
    watch_record,
    write_sample,
)

SMALL = Course(layers=4, samples=12, every=20)
WELL = Course(layers=4, samples=12, every=20, trouble=False)


def test_the_first_sentence_is_how_the_run_went_and_what_warnings_there_are():
    first = watch_answer(watch_record(SMALL))[0]
    assert first.startswith("A run of 220 updates, loss from 10.1 to ")
    assert " and rising, 10.1 at the last update (lowest " in first
    assert "1 serious warning and 1 warning: G91 loss-rises since step " in first
    assert "G90 logits-grow layer 3 attention since step 200" in first


def test_a_run_without_a_warning_says_so_and_how_its_last_sample_is():
    told = answer(watch_record(WELL))
    assert told[0].endswith("and falling; no warning.")
    assert told[1].startswith("At step 220: ")


def test_of_a_run_with_warnings_the_last_sample_is_not_told():
    assert len(answer(watch_record(SMALL))) == 1


def test_a_run_that_goes_on_is_told_as_one():
    assert watch_answer(watch_record(WELL, closed=False))[0].startswith(
        "A run that has made 220 updates so far, loss from "
    )


def test_a_run_without_a_loss_says_so():
    record = Record()
    begin(record, WELL)
    record.append(reading for reading in readings(WELL, 1))
    note_progress(record, WELL, step=1)
    assert (
        "1 update so far, without a loss that the watch could see; no warning"
        in (watch_answer(record)[0])
    )


def with_attempts(*ends):
    record = watch_record(WELL)
    attempts = [{"run": "", "first": 1 + 59 * at, "time": "", **end} for at, end in enumerate(ends)]
    record.note("watch", {**record.provenance["watch"], "attempts": attempts})
    return watch_answer(record)


CLOSED = {"ended": "closed"}
FAILED = {"ended": "error", "error": "ValueError: no data"}


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ({}, "was cut off"),
        (CLOSED, "was closed"),
        (FAILED, "ended with an error (ValueError: no data)"),
    ],
)
def test_a_run_that_went_on_says_where_and_how_its_first_part_ended(end, words):
    assert with_attempts(end, CLOSED)[1] == (
        f"The run has two parts: the first {words}, the second began at step 60."
    )


def test_of_many_parts_the_last_ones_are_told():
    told = with_attempts({}, {}, {}, CLOSED)
    assert told[1] == "The run has 4 parts; the last ones began at steps 60, 119 and 178."


def test_a_run_that_ended_with_an_error_says_so():
    assert "It ended with an error: ValueError: no data." in with_attempts(FAILED)
    assert with_attempts({}, FAILED)[2] == "It ended with an error: ValueError: no data."


def test_a_watch_is_what_wrote_the_record():
    record = watch_record(WELL)
    assert written_by(record.provenance) == "watch"
    assert repr(record).startswith("<Record: watch of 'gpt2'; layers: decoder 4; ")


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ([], "since step 1,200"),
        ([7], "layer 7 since step 1,200"),
        ([7, 9], "layers 7, 9 since step 1,200"),
        ([1, 2, 3, 4, 5], "layers 1, 2, 3 and 2 more since step 1,200"),
    ],
)
def test_a_warning_has_a_place(layers, words):
    finding = Finding("It grows.", details={"layers": layers, "since": 1200})
    assert warning_place(finding) == words


def test_what_the_verdict_says_is_not_said_again():
    verdict = "The mlp of layer 7 grows since step 1,200."
    details = {"layers": [7], "sublayer": "mlp", "since": 1200}
    assert warning_place(Finding(verdict, details=details), unless_in=verdict) == ""


def test_warnings_are_counted_by_how_bad_they_are():
    findings = [Finding("a", severity="warning"), Finding("b", severity="warning")]
    assert count_warnings(findings) == "2 warnings"
    assert count_warnings([]) == ""
    assert count_warnings([Finding("c", severity="serious"), *findings, Finding("d")]) == (
        "1 serious warning, 2 warnings and 1 note"
    )


def test_the_screen_has_the_findings_the_answer_and_the_map_in_this_order():
    text = str(watch_record(SMALL))
    places = [
        text.index(words)
        for words in (
            "gpt2: GPT2LMHeadModel",
            "serious: G91: ",
            "do: Stop",
            "A run of 220 updates",
            "by layer and step (attention.logit_std[attention])",
            "of the run",
            "quantity",
        )
    ]
    assert places == sorted(places)
    assert "leadline watch FILE" not in text  # in Python options of a command mean nothing


def test_lines_over_depth_are_those_of_the_last_attempt():
    record = watch_record(WELL)
    again = Course(layers=4, samples=12, every=20, trouble=False, run="again", seed=5)
    write_sample(record, again, 3)
    attempts = [{"run": "", "first": 1, "time": ""}, {"run": "again", "first": 41, "time": ""}]
    record.note("watch", {**record.provenance["watch"], "attempts": attempts})
    expected = [r.value for r in readings(again, 60) if r.quantity == "tokens.cosine"]
    assert list(record["tokens.cosine"].values) == expected
