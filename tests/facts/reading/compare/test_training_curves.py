"""Training runs side by side."""

from __future__ import annotations

import json
import math

import pytest

from leadline.reading.compare.compare import compare
from leadline.reading.compare.training_curves import change_text, task_entropies
from leadline.record import Reading
from leadline.record.rows.site import RUN
from tests.synthetic import gpt2_record
from tests.synthetic_sweep import BIGRAM, LOST, UNIGRAM, sweep_record, training_record


def row_of(comparison, label: str):
    return next(row for row in comparison.curves if row.label == label)


def test_curves_are_matched_by_quantity_and_compared_at_their_ends() -> None:
    found = compare(training_record(), training_record(end=2.5, name="other", steps=300))
    row = row_of(found, "validation.loss")
    assert change_text(row, row.sides[0]) == ""
    assert change_text(row, row.sides[1]) == "+0.3"
    growth = row_of(found, "gauge.stream_growth")
    assert change_text(growth, growth.sides[1]) == "×1"


def test_a_run_that_diverged_has_no_distance() -> None:
    other = training_record(name="other")
    other.append([Reading("validation.loss", RUN, "value", math.nan, step=450, seed=0)])
    row = row_of(compare(training_record(), other), "validation.loss")
    assert change_text(row, row.sides[1]) == "-"


def test_the_text_shows_curves_first_and_then_depth() -> None:
    text = str(compare(training_record(layers=True), training_record(layers=True, name="other")))
    assert text.index("validation.loss") < text.index("stream.norm")
    assert any(
        line.startswith("validation.loss") and line.endswith("+0") for line in text.splitlines()
    )


def test_a_measurement_beside_a_training_run_says_what_is_not_shared() -> None:
    text = str(compare(training_record(layers=True), gpt2_record()))
    assert "stream.norm" in text
    assert "Only in small: train.loss, validation.loss" in text


def test_sweeps_are_matched_by_run() -> None:
    second = sweep_record(changes={"design=pre, depth=6, seed=0": {"loss": 2.0}})
    found = compare(sweep_record(), second, names=["a", "b"])
    row = row_of(found, "design=pre, depth=6, seed=0")
    assert change_text(row, row.sides[1]) == "-0.3"
    assert len(found.curves) == 36


def test_the_comparison_is_strict_json_with_its_curves() -> None:
    found = json.loads(json.dumps(compare(training_record(), training_record()).to_json()))
    losses = next(row for row in found["curves"] if row["quantity"] == "validation.loss")
    assert losses["records"][1]["difference_at_last"] == 0
    assert losses["records"][0]["steps"][:2] == [0, 50]


def test_the_notebook_form_has_both_tables() -> None:
    page = compare(training_record(layers=True), training_record(layers=True))._repr_html_()
    assert page.count("<table>") == 2
    assert "over steps" in page


def test_entropies_come_from_the_task() -> None:
    assert task_entropies(training_record()) == {"unigram": UNIGRAM, "bigram": BIGRAM}
    assert task_entropies(gpt2_record()) == {}


@pytest.mark.parametrize("other", [training_record, gpt2_record, sweep_record])
def test_any_two_records_can_be_compared(other) -> None:
    assert str(compare(training_record(), other(), names=["a", "b"])).startswith("a against b")


@pytest.mark.parametrize("lost", [0, 1])
def test_a_run_that_diverged_is_not_compared_by_its_last_loss(lost: int) -> None:
    records = [training_record(), training_record(end=2.5, name="other")]
    records[lost].note("outcome", LOST)
    found = compare(*records)
    row = row_of(found, "validation.loss")
    assert change_text(row, row.sides[1]) == "-"
    assert [row.last_text(side) for side in row.sides].index("diverged") == lost
    rate = row_of(found, "train.rate")
    assert change_text(rate, rate.sides[1]) == "×1"
    told = json.loads(json.dumps(row.to_json()))["records"]
    assert [side["diverged"] for side in told] == [lost == 0, lost == 1]
    assert told[1]["difference_at_last"] is None
    text, page = str(found), found._repr_html_()
    for shown in (text, page):
        assert (
            f"{found.names[lost]}: The run diverged: the loss was not finite at step 407." in shown
        )
        assert shown.count("diverged") == 2 + 2


def test_a_comparison_says_where_the_last_steps_differ() -> None:
    short = training_record(name="other", steps=300)
    assert "The last steps differ: small at step 400, other at step 300." in str(
        compare(training_record(), short)
    )
    short.note("outcome", {"status": "seconds", "reason": "60 seconds were over", "steps": 305})
    text = str(compare(training_record(), short))
    assert "The last steps differ: small at step 400, other at step 305." in text
    assert "other: The run ended by the clock after 305 steps: 60 seconds were over." in text
    assert "differ" not in str(compare(training_record(), training_record(name="other")))


def test_runs_that_finished_are_not_told() -> None:
    done = {"status": "finished", "reason": "", "steps": 400}
    text = str(compare(training_record(outcome=done), training_record(outcome=done)))
    assert "The run" not in text


def test_names_of_runs_are_joined_by_semicolons() -> None:
    run = "design=plain, depth=48, seed={}"
    gone = {run.format(0): {"status": "diverged", "loss": None}}
    first = sweep_record(missing=[run.format(1), run.format(2)])
    text = str(compare(first, sweep_record(changes=gone), names=["a", "b"]))
    assert f"Only in b: {run.format(1)}; {run.format(2)}." in text
    assert f"The last steps differ in 1 of the runs: {run.format(0)}." in text
