"""The interval of a share, against scipy and against its own definition."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from leadline.reading.map.binomial import binomial_interval


@pytest.mark.parametrize("trials", [1, 2, 3, 5, 10, 40])
def test_the_interval_is_that_of_clopper_and_pearson(trials: int) -> None:
    for successes in range(trials + 1):
        for confidence in (0.68, 0.95, 0.999):
            known = stats.binomtest(successes, trials).proportion_ci(confidence, method="exact")
            found = binomial_interval(successes, trials, confidence=confidence)
            assert found == pytest.approx((known.low, known.high), abs=1e-12)


def test_ninety_five_percent_is_the_default() -> None:
    # Two tails of 2.5 %: of three successes in three, low^3 = 0.025.
    assert binomial_interval(3, 3) == pytest.approx((0.025 ** (1 / 3), 1.0))
    assert binomial_interval(0, 3) == pytest.approx((0.0, 1 - 0.025 ** (1 / 3)))


def test_nothing_tried_says_nothing() -> None:
    assert binomial_interval(0, 0) == (0.0, 1.0)


def test_the_interval_covers_at_least_what_it_promises() -> None:
    for p in (0.05, 0.3, 0.5, 0.77):
        covered = math.fsum(
            math.comb(7, k) * p**k * (1 - p) ** (7 - k)
            for k in range(8)
            if binomial_interval(k, 7)[0] <= p <= binomial_interval(k, 7)[1]
        )
        assert covered >= 0.95
