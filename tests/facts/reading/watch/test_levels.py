"""Medians and noise of rows in which values are missing or not finite."""

from __future__ import annotations

import math

import numpy as np
import pytest

from leadline.reading.watch import drawing, screen, state_words
from leadline.reading.watch.levels import levels_of, noise_of, row_medians
from leadline.record.file import snapshot


def test_levels_are_logarithms_and_zero_is_below_all():
    levels = levels_of(np.array([[1.0, math.e, 0.0, -1.0, math.nan]]), logarithmic=True)
    assert levels[0, :4].tolist() == [0.0, 1.0, -math.inf, -math.inf]
    assert math.isnan(levels[0, 4])
    values = np.array([[1.0, -2.0]])
    assert levels_of(values, logarithmic=False) is values


@pytest.mark.parametrize("count", [1, 2, 5, 6])
def test_a_median_leaves_out_what_is_missing_or_not_finite(count):
    rng = np.random.default_rng(count)
    rows = rng.normal(size=(4, 9))
    usable = np.zeros((4, 9), dtype=bool)
    usable[:, :count] = True
    rows[0, 0] = math.nan
    expected = [
        np.median([one for one in row[:count] if math.isfinite(one)] or [0.0]) for row in rows
    ]
    assert row_medians(rows, usable) == pytest.approx(expected)


def test_a_row_of_nothing_has_the_median_zero():
    assert row_medians(np.array([[math.nan, math.inf]])).tolist() == [0.0]


def test_noise_is_the_standard_deviation_of_what_varies_at_random():
    noise = np.random.default_rng(0).normal(0, 0.3, (1, 20_000))
    assert noise_of(noise)[0] == pytest.approx(0.3, rel=0.03)
    drift = noise + np.linspace(0, 50, 20_000)
    assert noise_of(drift)[0] == pytest.approx(0.3, rel=0.03)
    drift[0, ::100] += 40.0
    assert noise_of(drift)[0] == pytest.approx(0.3, rel=0.05)


def test_two_values_have_no_noise():
    assert noise_of(np.array([[1.0, 5.0, math.nan]])).tolist() == [0.0]


def test_what_was_chosen_by_eye_stays_as_it_was_seen():
    assert (screen.LEAST_LINES, screen.LEAST_GAUGES, screen.ABOVE_STATE) == (3, 3, 3)
    assert (state_words.JUST_NOW, state_words.MOST_NOTES) == (2.0, 2)
    assert drawing.LEAST_COLUMNS == 10
    assert (snapshot.PAUSE, snapshot.TRIES) == (0.05, 20)
