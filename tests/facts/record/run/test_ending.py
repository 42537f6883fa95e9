"""How a run ended stands wherever its record is shown."""

from __future__ import annotations

import math
from typing import Any

import pytest

from leadline.record import Record
from leadline.record.run.curve import curve_rows
from leadline.record.run.ending import RunEnding, ending_of, ending_text, endings_of, is_cell
from tests.synthetic import gpt2_record
from tests.synthetic_sweep import LOST, sweep_record, training_record

CASES = [
    (("finished", "", 400), "The run finished: 400 steps."),
    (("finished", "", 1), "The run finished: 1 step."),
    (
        ("diverged", "the loss was not finite at step 2", 2),
        "The run diverged: the loss was not finite at step 2.",
    ),
    (("diverged", "", 2), "The run diverged: at step 2."),
    (
        ("plateau", "no training loss below 2.797 in 20 steps", 70),
        "The run ended on a plateau after 70 steps: no training loss below 2.797 in 20 steps.",
    ),
    (
        ("seconds", "60 seconds of training were over", 1890),
        "The run ended by the clock after 1,890 steps: 60 seconds of training were over.",
    ),
    (("stopped", "", 3), "The run stopped after 3 steps."),
]


@pytest.mark.parametrize(("fields", "sentence"), CASES)
def test_an_ending_is_said_in_one_sentence(fields: tuple[Any, ...], sentence: str) -> None:
    ending = RunEnding(*fields)
    assert ending.sentence == sentence
    assert ending.diverged is (fields[0] == "diverged")


@pytest.mark.parametrize(("fields", "sentence"), CASES)
def test_a_printed_record_and_a_notebook_say_how_the_run_ended(
    fields: tuple[Any, ...], sentence: str
) -> None:
    outcome = dict(zip(("status", "reason", "steps"), fields, strict=True))
    record = training_record(outcome=outcome)
    assert ending_of(record) == RunEnding(*fields)
    assert sentence in str(record).splitlines()
    assert f"<div>{sentence}</div>" in record._repr_html_()


def test_a_run_without_an_outcome_has_not_ended() -> None:
    assert "The run has not ended." in str(training_record()).splitlines()
    assert ending_of(training_record()) is None
    for record in (gpt2_record(), sweep_record(), Record()):
        assert ending_text(record.provenance) == ""


def test_an_outcome_that_is_none_of_ours_is_left_alone() -> None:
    for found in ("fine", {"of": "something else"}, [1]):
        record = gpt2_record()
        record.note("outcome", found)
        assert ending_of(record) is None
        assert endings_of(record) == {}


def test_the_losses_of_a_run_that_diverged_are_no_result() -> None:
    rows = {row.label: row for row in curve_rows(training_record(outcome=LOST))}
    for name in ("train.loss", "validation.loss"):
        assert rows[name].last == "diverged"
        assert rows[name].remark.startswith("at step 407; lowest 2.2")
    assert rows["train.rate"].last == "0.001"
    assert rows["train.rate"].remark == ""
    text, page = (
        str(training_record(outcome=LOST)),
        training_record(outcome=LOST)._repr_html_(),
    )
    (line,) = [line for line in text.splitlines() if line.startswith("validation.loss")]
    assert line.split()[1:3] == ["5.5", "diverged"]
    assert page.count('<td style="text-align:right">diverged</td>') == 2


def test_a_run_that_ended_otherwise_keeps_its_last_loss() -> None:
    for status in ("finished", "plateau", "seconds"):
        outcome = {"status": status, "reason": "x", "steps": 400, "loss": 2.26}
        rows = {row.label: row for row in curve_rows(training_record(outcome=outcome))}
        assert rows["validation.loss"].last == "2.26"


def test_a_loss_that_was_never_finite_has_no_lowest() -> None:
    record = sweep_record(
        limits={"pre": 6},
        depths=(6,),
        seeds=(0,),
        changes={"design=pre, depth=6, seed=0": {"status": "diverged", "loss": math.nan}},
    )
    rows = {row.label: row for row in curve_rows(record)}
    assert rows["train.loss"].remark == "at step 200"


def test_a_cell_that_diverged_says_so_in_its_row() -> None:
    run = "design=post, depth=24, seed=1"
    record = sweep_record(changes={run: {"status": "diverged", "loss": None, "steps": 60}})
    rows = {row.label: row for row in curve_rows(record)}
    assert rows[run].last == "diverged"
    assert rows[run].remark.startswith("at step 60; lowest ")
    assert [row.label for row in rows.values() if row.diverged] == [run]
    assert endings_of(record)[run].diverged
    assert len(endings_of(record)) == 36


def test_cells_are_told_by_their_keys() -> None:
    assert is_cell("cell:depth=6")
    assert not is_cell("sweep")
