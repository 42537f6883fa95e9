"""The largest sum of squares of a softmax row: against brute force, many digits and drawn rows."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from leadline.theory.attention._row_ratio import row_concentration, row_sum_bound


def exact(m: int, span: float) -> mpmath.mpf:
    """The maximum over every k, with 400 digits: e^{2D} itself, not e^{-D}."""
    with mpmath.workdps(400):
        big = mpmath.exp(mpmath.mpf(span))
        values = [(k * big**2 + m - k) / (k * big + m - k) ** 2 for k in range(1, m + 1)]
        return max(values)


@pytest.mark.parametrize("span", [0.0, 1e-9, 0.1, 0.7, 1.0, 2.0, 3.0, 5.5, 11.0, 47.7, 95.4, 300.0])
def test_the_best_k_is_found_without_trying_all(span: float) -> None:
    counts = [1, 2, 3, 5, 8, 13, 30, 77]
    for m, found in zip(counts, row_concentration(counts, span), strict=True):
        assert abs(found / exact(m, span) - 1) < 4e-15


def test_a_stationary_point_that_is_whole_is_the_best_k() -> None:
    # e^D + 1 = 3 and m = 9: k = 3, (3 * 4 + 6) / (3 * 2 + 6)^2 = 18 / 144.
    assert row_concentration([9], math.log(2.0))[0] == pytest.approx(0.125, rel=1e-15)


def test_eight_thousand_rows_agree_with_brute_force() -> None:
    span, counts = 3.0, np.array([1000, 4097, 8192])
    small = math.exp(-span)
    for m, found in zip(counts, row_concentration([int(m) for m in counts], span), strict=True):
        k = np.arange(1, m + 1, dtype=np.float64)
        every = (k + (m - k) * small**2) / (k + (m - k) * small) ** 2
        assert found == pytest.approx(every.max(), rel=1e-14)


def test_no_drawn_row_is_more_concentrated() -> None:
    generator = np.random.default_rng(0)
    worst = 0.0
    for m in (2, 3, 7):
        for span in (0.3, 2.0, 6.0):
            corners = generator.random((2000, m)) < generator.random((2000, 1))
            logits = span * np.where(
                generator.random((2000, 1)) < 0.5, corners, generator.random((2000, m))
            )
            weights = np.exp(logits)
            squares = np.square(weights / weights.sum(1, keepdims=True)).sum(1)
            worst = max(worst, float(squares.max()) / row_concentration([m], span)[0])
    assert 1 - 1e-9 < worst < 1 + 1e-12


def test_a_span_without_end_lets_one_key_have_everything() -> None:
    assert row_concentration([1, 2, 500], math.inf).tolist() == [1.0, 1.0, 1.0]
    assert row_concentration([500], 1e6).tolist() == [1.0]


def test_equal_logits_leave_one_over_m() -> None:
    assert row_concentration([1, 4, 10], 0.0) == pytest.approx([1.0, 0.25, 0.1], rel=1e-15)


def test_a_row_that_sees_nothing_adds_nothing() -> None:
    assert row_concentration([0, 2], 0.0).tolist() == [0.0, 0.5]
    assert row_sum_bound([0, 2, 2], 0.0) == 1.0


def test_rows_are_added_under_the_root() -> None:
    assert row_sum_bound([1, 2, 3], 0.0) == pytest.approx(math.sqrt(1 + 1 / 2 + 1 / 3), rel=1e-15)
