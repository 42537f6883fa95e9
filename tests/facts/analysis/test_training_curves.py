"""Training runs side by side."""

from __future__ import annotations

import json
import math

import pytest

from leadline.analysis.compare import compare
from leadline.analysis.training_curves import change_text, task_entropies
from leadline.record import Reading
from leadline.record.site import RUN
from tests.synthetic import gpt2_record
from tests.synthetic_sweep import BIGRAM, UNIGRAM, sweep_record, training_record


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
    assert "+0 to small at the end" in text


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
