"""Gauges as predictors, against all pairs counted one by one."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import pytest

from leadline.reading.map.cells import read_sweep
from leadline.reading.map.gauge_prediction import (
    GUESS,
    PRESENT,
    Prediction,
    area_under_curve,
    badness,
    best_prediction,
    gauge_table,
    predict,
)
from leadline.reading.map.text import prediction_sentence
from leadline.reading.map.trainability import trainability
from tests.synthetic_sweep import STEPS, sweep_record

COSINE, RATIO, GROWTH = "gauge.token_cosine", "gauge.gradient_ratio", "gauge.stream_growth"


def by_pairs(failing: list[float], training: list[float]) -> float:
    wins = [1.0 if f > t else 0.5 if f == t else 0.0 for f in failing for t in training]
    return sum(wins) / len(wins)


@pytest.mark.parametrize("seed", range(20))
def test_the_area_is_the_share_of_pairs_in_order(seed: int) -> None:
    draw = random.Random(seed)
    # Few values, so that there are ties; infinities too.
    values = [0.0, 0.1, 0.5, 0.5, 2.0, math.inf]
    failing = draw.choices(values, k=draw.randint(1, 12))
    training = draw.choices(values, k=draw.randint(1, 12))
    assert area_under_curve(failing, training) == pytest.approx(by_pairs(failing, training))


def test_the_area_of_a_perfect_order_is_one_and_of_equals_a_half() -> None:
    assert area_under_curve([3.0, 4.0], [1.0, 2.0]) == 1.0
    assert area_under_curve([1.0, 2.0], [3.0, 4.0]) == 0.0
    assert area_under_curve([1.0, 1.0], [1.0]) == 0.5


def test_without_both_kinds_there_is_no_area() -> None:
    assert math.isnan(area_under_curve([], [1.0]))
    assert math.isnan(area_under_curve([1.0], []))


def test_a_cosine_is_the_worse_the_higher() -> None:
    assert badness(COSINE, 0.9) > badness(COSINE, 0.1) > badness(COSINE, -0.5)


@pytest.mark.parametrize("gauge", [RATIO, GROWTH])
def test_a_ratio_is_the_worse_the_farther_from_one_either_way(gauge: str) -> None:
    assert badness(gauge, 1000.0) == pytest.approx(3.0)
    assert badness(gauge, 0.001) == pytest.approx(3.0)
    assert badness(gauge, 1.0) == 0.0


@pytest.mark.parametrize("gauge", [COSINE, RATIO, GROWTH])
def test_no_number_is_the_worst(gauge: str) -> None:
    assert badness(gauge, math.nan) == badness(gauge, math.inf) == math.inf


def test_a_gradient_that_is_gone_is_the_worst() -> None:
    assert badness(RATIO, 0.0) == math.inf


def test_predictions_are_those_of_all_pairs_of_cells() -> None:
    record = sweep_record()
    cells = read_sweep(record, margin=0.3).cells
    found = predict(gauge_table(record), cells)
    assert {(one.gauge, one.step) for one in found} == set(
        itertools.product((COSINE, RATIO, GROWTH), STEPS)
    )
    for one in found:
        values = {r.run: r.value for r in record.select(one.gauge, step=one.step)}
        failing = [badness(one.gauge, values[c.run]) for c in cells if not c.trains]
        training = [badness(one.gauge, values[c.run]) for c in cells if c.trains]
        assert (one.failed, one.trained) == (len(failing), len(training)) == (18, 18)
        assert one.auc == pytest.approx(by_pairs(failing, training))


def test_holes_are_not_judged() -> None:
    hole = {"design=pre, depth=6, seed=0": {"status": "failed", "loss": None, "reason": "x"}}
    record = sweep_record(changes=hole)
    found = predict(gauge_table(record), read_sweep(record, margin=0.3).cells)
    assert {one.cells for one in found} == {35}


def test_the_earliest_of_the_best_is_taken() -> None:
    found = [
        Prediction(COSINE, 0, 0.8, 5, 5),
        Prediction(COSINE, 50, 0.9, 5, 5),
        Prediction(COSINE, 100, 0.9, 5, 5),
        Prediction(RATIO, 50, 0.9, 5, 5),
    ]
    assert best_prediction(found) is found[1]
    assert best_prediction(found, gauge=RATIO) is found[3]


def test_a_step_needs_four_fifths_of_the_cells() -> None:
    assert PRESENT == 0.8
    for left, at in ((8, 1), (7, 0)):
        found = [Prediction(COSINE, 0, 0.8, 5, 5), Prediction(COSINE, 50, 1.0, 5, left - 5)]
        assert best_prediction(found) is found[at]


def test_one_early_divergence_does_not_force_the_first_step_on_the_map() -> None:
    gone = {"status": "diverged", "loss": None}
    record = sweep_record(changes={"design=plain, depth=48, seed=0": gone})
    found = trainability(record)
    assert [(one.step, one.cells) for one in found.predictions if one.gauge == COSINE] == [
        (0, 36),
        (50, 36),
        (100, 35),
        (200, 35),
    ]
    assert found.shown is not None
    assert found.shown.auc == 1.0
    ratios = [one for one in found.predictions if one.gauge == RATIO]
    ordered = [Prediction(RATIO, p.step, 0.6 + p.step / 1000, p.trained, p.failed) for p in ratios]
    assert best_prediction(ordered) is ordered[-1]


def test_a_sentence_says_how_many_cells_have_no_reading_at_the_step() -> None:
    gone = {"status": "diverged", "loss": None}
    found = trainability(sweep_record(changes={"design=plain, depth=48, seed=0": gone}))
    late = tuple(one for one in found.predictions if one.step == 100)
    text = prediction_sentence(replace(found, predictions=late))
    assert (
        "over 17 cells that fail and 18 that train, without 1 cell that has no reading there (0.5 is a guess"
        in text
    )


@pytest.mark.parametrize("auc", [0.5, 0.417])
def test_a_guess_is_no_predictor(auc: float) -> None:
    assert GUESS == 0.5
    found = trainability(sweep_record())
    guessed = tuple(replace(one, auc=auc) for one in found.predictions)
    text = prediction_sentence(replace(found, predictions=guessed))
    assert text == (
        "No gauge tells the 18 cells that fail from the 18 that train: the best area under the ROC "
        f"curve is {auc:.3f}, and 0.5 is a guess."
    )
    better = tuple(replace(one, auc=0.501) for one in found.predictions)
    assert prediction_sentence(replace(found, predictions=better)).startswith("Best predictor: ")


def test_where_nothing_can_be_judged_there_is_no_best() -> None:
    assert best_prediction([Prediction(COSINE, 0, math.nan, 5, 0)]) is None
    assert best_prediction([]) is None
