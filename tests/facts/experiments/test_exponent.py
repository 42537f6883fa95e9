"""The exponent over depth, against numbers by hand and against numpy and scipy."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

from leadline.errors import InputError
from leadline.experiments.outcome.exponent import fit_exponent

DEPTHS = (6, 12, 24, 48, 96)


@pytest.mark.parametrize("power", [-0.5, 0.0, 1.0])
def test_a_power_law_has_its_own_exponent(power: float) -> None:
    found = fit_exponent(DEPTHS, {0: [7.0 * depth**power for depth in DEPTHS]})
    assert found.slope == pytest.approx(power, abs=1e-12)


def test_two_seeds_by_hand() -> None:
    # log2 y is 0, 1 over log2 L of 1, 2: slope 1. And 0, 3: slope 3.
    # Mean 2, sd sqrt(2), standard error sqrt(2) / sqrt(2) = 1.
    found = fit_exponent([2, 4], {5: [1.0, 2.0], 9: [1.0, 8.0]})
    assert (found.slope, found.error) == pytest.approx((2.0, 1.0))
    assert (found.seeds, found.r2) == (2, pytest.approx(1.0))


def test_slope_and_error_are_those_of_numpy_and_scipy() -> None:
    rng = np.random.default_rng(0)
    lines = {seed: np.exp(rng.normal(size=5)) for seed in range(3)}
    slopes = [np.polyfit(np.log(DEPTHS), np.log(line), 1)[0] for line in lines.values()]
    found = fit_exponent(DEPTHS, {seed: line.tolist() for seed, line in lines.items()})
    assert found.slope == pytest.approx(np.mean(slopes))
    assert found.error == pytest.approx(stats.sem(slopes))
    mean = np.mean([np.log(line) for line in lines.values()], axis=0)
    assert found.r2 == pytest.approx(np.corrcoef(np.log(DEPTHS), mean)[0, 1] ** 2)


def test_one_seed_has_no_error_and_a_constant_no_r2() -> None:
    found = fit_exponent(DEPTHS, {0: [3.0] * 5})
    assert found.slope == 0.0
    assert math.isnan(found.error)
    assert math.isnan(found.r2)
    assert found.text == "L^0 (1 seed)"


def test_the_words_have_slope_error_and_seeds() -> None:
    found = fit_exponent([2, 4], {0: [1.0, 2.0**-0.5], 1: [1.0, 2.0**-0.52]})
    assert found.text.replace("−", "-") == "L^-0.51 ± 0.01 (2 seeds)"
    assert str(found) == found.text


def test_within_means_the_distance_of_the_slope() -> None:
    found = fit_exponent([2, 4], {0: [1.0, 2.0**-0.45]})
    assert found.within(-0.5, 0.1)
    assert not found.within(-0.5, 0.04)


def test_the_json_is_strict() -> None:
    told = fit_exponent([2, 4], {0: [1.0, 2.0]}).to_json()
    assert json.loads(json.dumps(told, allow_nan=False))["error"] is None


@pytest.mark.parametrize(
    ("depths", "values", "word"),
    [
        ([12], {0: [1.0]}, "two depths"),
        ([12, 12], {0: [1.0, 2.0]}, "two depths"),
        ([0, 12], {0: [1.0, 2.0]}, "at least 1"),
        ([6, 12], {}, "one seed"),
        ([6, 12], {4: [1.0]}, "Seed 4 has 1"),
        ([6, 12], {4: [1.0, 0.0]}, "depth 12"),
        ([6, 12], {4: [math.nan, 1.0]}, "depth 6"),
        ([6, 12], {4: [math.inf, 1.0]}, "depth 6"),
    ],
)
def test_what_has_no_exponent_is_refused(
    depths: list[int], values: dict[int, list[float]], word: str
) -> None:
    with pytest.raises(InputError, match=word):
        fit_exponent(depths, values)
