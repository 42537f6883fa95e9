"""How a loss is doing now: its level, its direction, its lowest level."""

from __future__ import annotations

import math

import numpy as np
import pytest

from leadline.record.run.trend import (
    APART,
    BACK,
    ERRORS,
    LEAST,
    MOST,
    SHARE,
    SHARE_OF_SLOW,
    STANDS_OUT,
    trend_of,
)


def trend(values):
    return trend_of(np.arange(1, len(values) + 1), np.asarray(values, dtype=float))


def test_without_a_value_there_is_no_trend():
    assert trend([]) is None


def test_a_few_updates_have_a_level_and_no_direction():
    told = trend([4.0, 3.0, 2.0])
    assert (told.step, told.first, told.now, told.direction) == (3, 4.0, 3.0, "")
    assert told.words == "3"


def test_now_is_the_median_of_the_last_tenth_between_five_and_a_hundred_updates():
    values = np.arange(30.0)  # 3 would be a tenth
    assert trend(values).now == 27.0  # the median of 25 to 29
    values = np.arange(500.0)
    assert trend(values).now == np.median(values[450:])
    values = np.arange(5000.0)  # a tenth would be 500
    assert trend(values).now == np.median(values[4900:])
    assert (SHARE, LEAST, MOST) == (0.1, 5, 100)


@pytest.mark.parametrize(
    ("slope", "direction"), [(-1e-2, "falling"), (1e-2, "rising"), (0.0, "level")]
)
def test_noise_is_no_direction_and_a_slope_above_it_is(slope, direction):
    noise = np.random.default_rng(0).normal(0, 0.1, 400)
    assert trend(5 + noise + slope * np.arange(400)).direction == direction


def test_chance_is_told_from_change_by_three_standard_errors():
    # Alternating values: neighbours differ by 0.2 or -0.2, so sigma is 1.4826 * 0.2 / sqrt(2).
    before = np.tile([1.9, 2.1], 45)
    sigma = 1.4826 * 0.2 / math.sqrt(2)
    error = 1.25 * sigma * math.sqrt(1 / 10 + 1 / 10)
    for step, direction in ((0.9, "level"), (1.1, "rising")):
        last = 2.0 + step * ERRORS * error + np.tile([-0.1, 0.1], 5)
        assert trend(np.concatenate([before, last])).direction == direction


def slowly(change_of_tenths):
    """100 updates whose tenths have levels of their own, in noise of 0.1 either way."""
    levels = 5 + np.cumsum(change_of_tenths)
    return np.repeat(levels, 10) + np.tile([-0.1, 0.1], 50)


def test_a_slow_fall_is_told_over_four_tenths_and_by_chance_over_none():
    assert BACK == (1, 2, 4)
    # The error of one comparison is 1.25 * 0.2097 * sqrt(2 / 10) = 0.117; three of them are 0.352.
    assert trend(slowly([-0.1] * 10)).direction == "falling"  # 0.4 in four tenths
    assert trend(slowly([-0.08] * 10)).direction == "level"  # 0.32


def test_a_fall_that_is_over_is_level():
    assert SHARE_OF_SLOW == 0.5
    # 0.4 in four tenths, of which the last one has 0.04 or 0.06: its even share would be 0.1.
    assert trend(slowly([0] * 6 + [-0.12, -0.12, -0.12, -0.04])).direction == "level"
    assert trend(slowly([0] * 6 + [-0.12, -0.11, -0.11, -0.06])).direction == "falling"


def test_a_last_update_far_above_the_level_is_told():
    noise = np.tile([1.9, 2.1], 50)  # sigma 0.2097, so eight of them are 1.677
    assert STANDS_OUT == 8.0
    assert trend(np.append(noise, 3.7)).peak is None
    told = trend(np.append(noise, 3.9))
    assert told.peak == 3.9
    assert told.words.startswith("2.1 and level, 3.9 at the last update")


def test_a_constant_loss_is_level():
    assert trend(np.full(60, 2.5)).direction == "level"


def test_the_lowest_level_is_told_where_the_loss_stands_more_than_two_per_cent_above_it():
    assert APART == 0.02
    falling_then = np.concatenate([np.linspace(4, 2, 50), np.full(58, 2.0)])
    assert trend(np.concatenate([falling_then, np.full(12, 2.03)])).lowest is None
    step, value = trend(np.concatenate([falling_then, np.full(12, 2.05)])).lowest
    assert value == 2.0
    assert 50 <= step <= 100
    assert trend(np.concatenate([falling_then, np.full(12, 2.05)])).words.startswith(
        "2.05 and rising (lowest 2 near step "
    )


def test_a_single_low_update_is_no_lowest_level():
    values = np.full(100, 2.0)
    values[40] = 0.1
    assert trend(values).lowest is None


def test_a_loss_that_is_lost_says_since_when_and_what_it_was():
    told = trend([3.0, 2.0, math.nan, math.inf])
    assert told.lost == 3
    assert math.isnan(told.now)
    assert told.words.startswith("not finite since step 3 (lowest 2.5 near step")


def test_a_loss_that_was_never_finite_is_lost_from_the_first_update():
    told = trend([math.nan, math.nan])
    assert (told.lost, told.words) == (1, "not finite since step 1")


def test_a_loss_that_has_come_back_is_not_lost():
    assert trend([3.0, math.nan, 2.0]).lost is None
