"""Numbers of a run over its steps: read, printed, shown in a notebook, exported."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from leadline.record import Quantity, Reading, Record
from leadline.record.rows.site import RUN
from leadline.record.run.curve import curve_rows, curves_of, run_quantities
from leadline.record.words.screen import MOST_ROWS
from leadline.record.words.summary import summarize
from leadline.record.words.text import record_screen
from tests.synthetic import gpt2_record
from tests.synthetic_sweep import sweep_record, training_record

LOSS = Quantity("validation.loss", "Loss", "L", "L", lives_on="run", headline="value")


def loss_record(values: dict[int, float], *, run: str = "") -> Record:
    record = Record()
    record.describe(LOSS)
    record.append(
        Reading("validation.loss", RUN, "value", value, run=run, step=step)
        for step, value in values.items()
    )
    return record


def test_a_curve_is_sorted_by_step_and_the_later_of_two_readings_stands() -> None:
    record = loss_record({20: 2.0, 0: 4.0, 10: 3.0})
    record.append([Reading("validation.loss", RUN, "value", 3.5, step=10)])
    (curve,) = curves_of(record)
    assert curve.steps == (0, 10, 20)
    assert curve.values.tolist() == [4.0, 3.5, 2.0]
    assert (curve.first, curve.last, len(curve)) == (4.0, 2.0, 3)


def test_the_lowest_value_is_the_lowest_finite_one() -> None:
    (curve,) = curves_of(loss_record({0: 4.0, 10: 2.5, 20: math.nan}))
    assert curve.lowest == (10, 2.5)
    (lost,) = curves_of(loss_record({0: math.nan}))
    assert lost.lowest[0] == 0
    assert math.isnan(lost.lowest[1])


def test_only_quantities_of_runs_have_curves() -> None:
    record = training_record(layers=True)
    assert "stream.norm" not in run_quantities(record)
    assert {curve.quantity for curve in curves_of(record)} == set(run_quantities(record))
    assert curves_of(gpt2_record()) == []
    assert curve_rows(gpt2_record()) == []


def test_rows_over_depth_leave_numbers_of_a_run_out() -> None:
    assert [row.label for row in summarize(training_record(layers=True))] == ["stream.norm"]


def test_a_record_prints_first_last_shape_and_the_lowest_loss() -> None:
    text = str(loss_record({0: 4.0, 10: 2.0, 20: 2.5}))
    assert re.search(r"validation.loss +4 +2.5  █▁▃ +lowest 2 at step 10", text)


def test_a_training_record_prints_its_task_its_curves_and_its_depth() -> None:
    text = str(training_record(layers=True))
    assert "task: stdlib, unigram entropy 3.14, bigram entropy 2.4" in text
    assert text.index("gauge.token_cosine") < text.index("stream.norm  mean")


def test_by_layer_the_last_step_is_shown() -> None:
    record = training_record(layers=True, steps=400)
    assert record["stream.norm"].first == pytest.approx(5.0)


def test_a_sweep_prints_how_its_cells_ended_and_a_row_per_run() -> None:
    run = "design=pre, depth=6, seed=0"
    record = sweep_record(
        changes={run: {"status": "failed", "loss": None}},
        missing=["design=plain, depth=48, seed=2"],
    )
    lines = record_screen(record, everything=True).text().splitlines()
    assert lines[0] == "Sweep made: design (3) x depth (4)"
    assert "36 cells: 1 failed, 34 finished, 1 not run yet" in lines
    assert sum(line.startswith("design=") for line in lines) == 34


def test_a_large_sweep_prints_some_runs_and_says_how_many_more() -> None:
    record = sweep_record(seeds=range(5))
    lines = str(record).splitlines()
    assert sum(line.startswith("design=") for line in lines) == MOST_ROWS
    assert any(
        line.startswith(f"{MOST_ROWS} of 60 rows") and "record.table()" in line for line in lines
    )


@pytest.mark.parametrize("make", [training_record, sweep_record])
def test_the_notebook_form_shows_curves(make) -> None:
    page = make()._repr_html_()
    assert "over steps" in page
    assert "<polyline" in page


@pytest.mark.parametrize("make", [training_record, sweep_record])
def test_a_record_with_runs_is_saved_and_read_again(make, tmp_path) -> None:
    record = make()
    again = Record.open(record.save(tmp_path / "a.leadline"))
    assert str(again) == str(record)


def test_every_form_of_export_holds_the_rows_of_a_run(tmp_path) -> None:
    record = training_record(layers=True)
    assert len(record.to_pandas()) == len(record.to_arrow()) == len(record)
    record.to_csv(tmp_path / "a.csv")
    assert len((tmp_path / "a.csv").read_text().splitlines()) == len(record) + 1
    losses = record.to_xarray()["validation.loss"]
    assert losses.dims == ("step",)
    (curve,) = curves_of(record, "validation.loss")
    assert np.array_equal(losses.sel(step=list(curve.steps)).values, curve.values)


def test_the_cells_of_a_sweep_are_exported_by_run() -> None:
    losses = sweep_record(seeds=(0,)).to_xarray()["validation.loss"]
    assert losses.sizes["run"] == 12
