"""Gauges as predictors, against all pairs counted one by one."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from leadline.analysis.gauge_prediction import (
    Prediction,
    area_under_curve,
    badness,
    best_prediction,
    gauge_table,
    predict,
)
from leadline.analysis.sweep_cells import read_sweep
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


def test_steps_that_some_cells_do_not_reach_are_left_aside() -> None:
    found = [Prediction(COSINE, 0, 0.8, 5, 5), Prediction(COSINE, 50, 1.0, 5, 4)]
    assert best_prediction(found) is found[0]


def test_where_nothing_can_be_judged_there_is_no_best() -> None:
    assert best_prediction([Prediction(COSINE, 0, math.nan, 5, 0)]) is None
    assert best_prediction([]) is None
