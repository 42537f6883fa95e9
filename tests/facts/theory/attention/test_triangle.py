"""The triangle that stands over causal attention: its norm against singular values."""

from __future__ import annotations

import math

import numpy as np
import pytest

from leadline.theory.attention._triangle import triangle_norm


def by_singular_values(n: int, span: float) -> float:
    rows = 1.0 / (1.0 + np.arange(n) * math.exp(-span))
    return float(np.linalg.svd(np.tril(np.ones((n, n))) * rows[:, None], compute_uv=False)[0])


@pytest.mark.parametrize("n", [1, 2, 3, 8, 64, 300])
@pytest.mark.parametrize("span", [0.0, 0.5, 1.0, 3.0, 10.0, 1e4])
def test_the_norm_is_above_the_singular_value_and_close(n: int, span: float) -> None:
    truth = by_singular_values(n, span)
    assert truth * (1 - 1e-14) <= triangle_norm(n, span) <= truth * (1 + 3e-12)


def test_two_rows_of_equal_weights_by_hand() -> None:
    # B = [[1, 0], [1/2, 1/2]]: B'B has trace 3/2 and determinant 1/4.
    by_hand = math.sqrt((1.5 + math.sqrt(1.5**2 - 1.0)) / 2)
    assert triangle_norm(2, 0.0) == pytest.approx(by_hand, rel=1e-12)
    assert by_hand == pytest.approx(1.144, abs=5e-4)


def test_averaging_stays_below_two_and_the_triangle_below_twice_e_to_the_span() -> None:
    for span in (0.0, 0.5, 1.0, 2.0):
        before = 0.0
        for n in (2, 8, 64, 512, 8192):
            found = triangle_norm(n, span)
            assert before < found < 2.0 * math.exp(span)
            before = found


def test_a_triangle_above_the_limit_is_not_worked_out() -> None:
    truth = by_singular_values(64, 3.0)
    assert triangle_norm(64, 3.0, unless_above=truth) == pytest.approx(truth, rel=1e-11)
    assert triangle_norm(64, 3.0, unless_above=5.0) == math.inf


def test_a_bound_is_had_at_the_length_of_a_book() -> None:
    assert 1.8 < triangle_norm(131_072, 0.0) < 2.0
