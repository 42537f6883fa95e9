"""Gauges against their past: now, before, and the layer that departs most."""

from __future__ import annotations

import math

import numpy as np
import pytest

from leadline.reading.watch import gauge_rows as rule
from leadline.reading.watch.gauge_rows import gauge_of, gauge_rows, most_telling, warned
from leadline.reading.watch.heat import layer_series
from leadline.reading.watch.history import History
from leadline.record import Finding
from tests.facts.reading.watch.test_heat import NORM, RATIO, group_of, history_of
from tests.synthetic_watch import Course, watch_record


def test_the_past_is_all_but_the_last_tenth():
    assert rule.RECENT == 0.1
    values = np.concatenate([np.linspace(1, 2, 90), np.full(10, 50.0)])
    row = gauge_of(group_of([values]))
    assert row.now == 50.0
    assert row.past == pytest.approx(1.5)
    assert (row.low, row.high) == (pytest.approx(1.1), pytest.approx(1.9))


def test_a_departure_counts_spreads_of_the_past():
    values = np.concatenate([np.linspace(1, 2, 90), np.full(10, 4.0)])
    row = gauge_of(group_of([values]))
    assert row.departure == pytest.approx((4.0 - 1.5) / ((1.9 - 1.1) / 2.56))


def test_gaussian_noise_of_one_departs_by_its_own_size():
    noise = np.random.default_rng(0).normal(10, 1.0, 20_000)
    noise[-1] = 13.0
    assert gauge_of(group_of([noise])).departure == pytest.approx(3.0, abs=0.1)


def test_a_change_below_five_per_cent_is_measured_by_five_per_cent():
    assert rule.FLOOR == 0.05
    values = np.concatenate([np.full(90, 2.0), np.full(10, 2.1)])
    assert gauge_of(group_of([values])).departure == pytest.approx(1.0)
    logarithmic = gauge_of(group_of([values], quantity=NORM))
    assert logarithmic.departure == pytest.approx(math.log(1.05) / 0.05)


def test_without_four_samples_behind_it_a_series_has_no_past():
    assert rule.LEAST_PAST == 4
    row = gauge_of(group_of([[1.0, 1.0, 1.0, 9.0]]))
    assert math.isnan(row.past)
    assert row.departure == 0.0
    assert gauge_of(group_of([[1.0, 1.0, 1.0, 1.0, 9.0]])).past == 1.0


def test_a_layer_is_compared_with_its_own_past():
    values = np.ones((5, 50)) * np.arange(1, 6)[:, None]
    values[3, -3:] = 40.0
    row = gauge_of(group_of(values))
    assert (row.worst.label, row.worst.value, row.worst.past) == ("3", 40.0, 4.0)
    assert row.now == 3.0  # the median over layers
    assert row.telling == row.worst.departure


def test_the_layer_that_moved_most_is_not_the_one_with_the_least_noise():
    steady = np.concatenate([np.full(45, 1.0), np.full(5, 1.3)])  # 1.3 times, far out of no noise
    noisy = np.concatenate([np.tile([5.0, 20.0], 23)[:45], np.full(5, 900.0)])
    row = gauge_of(group_of([steady, noisy], quantity=NORM))
    assert row.worst.label == "1"
    assert row.telling >= row.worst.departure


def test_a_gauge_that_is_zero_everywhere_is_zero_now():
    row = gauge_of(group_of(np.zeros((3, 20)), quantity=NORM))
    assert row.now == 0.0
    values = np.ones((3, 20))
    values[:, -1] = 0.0
    row = gauge_of(group_of(values, quantity=NORM))
    assert (row.now, row.past, row.worst.value) == (0.0, 1.0, 0.0)


def test_a_value_that_is_not_finite_departs_farthest():
    values = np.ones((3, 20))
    values[0, -1], values[1, -1] = 50.0, math.inf
    assert gauge_of(group_of(values)).worst.label == "1"
    assert gauge_of(group_of([[1.0, math.nan]])).worst.departure == math.inf


def test_rows_are_ordered_by_how_telling_they_are_and_warnings_come_first():
    record = watch_record(Course(layers=6, samples=60, every=10))
    history = History.of(record)
    groups = layer_series(history)
    rows = gauge_rows(history, groups, record.findings)
    labels = [row.label for row in rows]
    assert labels[0] == "attention.logit_std[attention]"
    assert rows[0].warned
    assert rows[0].worst.label == "4"
    assert "train.loss" not in labels
    assert "train.gradient_norm" in labels
    telling = [row.telling for row in rows if not row.warned]
    assert telling == sorted(telling, reverse=True)


def test_the_map_of_a_warning_comes_first_and_tensors_outside_come_last():
    record = watch_record(Course(layers=6, samples=60, every=10))
    groups = most_telling(layer_series(History.of(record)), record.findings)
    assert str(groups[0].address) == "attention.logit_std[attention]"
    assert [group.outside for group in groups[-2:]] == [True, True]
    assert not any(group.outside for group in groups[:-2])


def test_a_warning_speaks_of_a_group_by_quantity_stack_and_sublayer():
    group = group_of([[1, 2]], quantity=RATIO)
    stream = group.point

    def finding(**details):
        return Finding("v", details.pop("quantity", "update.ratio"), details=details)

    assert warned(group, [finding()]) is not None
    assert warned(group, [finding(stack="decoder", sublayer=stream)]) is not None
    assert warned(group, [finding(quantity="update.norm")]) is None
    assert warned(group, [finding(stack="encoder")]) is None
    assert warned(group, [finding(sublayer="mlp")]) is None


def test_history_of_a_record_is_that_of_its_samples():
    record = watch_record(Course(layers=3, samples=6, every=5))
    history = History.of(record)
    grown = History(record.quantities.values())
    for step in sorted({reading.step for reading in record.select()}):
        grown.add(record.select(step=step))
    assert history.step == grown.step == 25
    for name, sites in grown.series.items():
        for site, series in sites.items():
            assert history.series[name][site].values.tolist() == series.values.tolist()
    assert history_of([[1.0]]).step == 1
