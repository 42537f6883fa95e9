"""The composite measure and its least over one common vector, against grids and linear programs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import Tensor

from leadline.instruments.collapse import composite_residual as module
from leadline.instruments.collapse.composite_residual import (
    composite,
    composite_residual,
    composite_size,
    smallest_composite,
    smallest_composite_residual,
    token_singular_values,
)
from leadline.numerics.tokens import Tokens


def drawn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def slowly(matrix: Tensor) -> float:
    """sqrt(largest column sum times largest row sum), entry by entry."""
    rows, columns = matrix.shape
    column = max(sum(abs(float(matrix[i, j])) for i in range(rows)) for j in range(columns))
    row = max(sum(abs(float(matrix[i, j])) for j in range(columns)) for i in range(rows))
    return math.sqrt(column * row)


def test_the_composite_measure_is_column_sum_times_row_sum() -> None:
    assert float(composite(torch.tensor([[1.0, -2.0], [3.0, 4.0]]))) == pytest.approx(
        math.sqrt(6 * 7)
    )
    for seed in range(5):
        matrix = drawn(4, 7, seed=seed)
        assert float(composite(matrix)) == pytest.approx(slowly(matrix), rel=1e-14)


def test_it_is_no_norm() -> None:
    """A row of ones has 10, a column of ones has 10, their sum has 101."""
    row, column = torch.zeros(100, 100), torch.zeros(100, 100)
    row[0], column[:, 0] = 1.0, 1.0
    found = [float(composite(one)) for one in (row, column, row + column)]
    assert found == pytest.approx([10.0, 10.0, 101.0])


def test_it_is_submultiplicative_and_at_least_the_spectral_norm() -> None:
    for seed in range(20):
        first, second = drawn(4, 6, seed=seed), drawn(6, 5, seed=seed + 100)
        assert composite(first @ second) <= composite(first) * composite(second)
        assert composite(first) >= torch.linalg.matrix_norm(first, ord=2)


def test_the_mean_is_not_where_the_composite_measure_is_least() -> None:
    x = torch.tensor([[[0.0], [0.0], [0.0], [1.0]]])
    assert float(composite_residual(Tokens(x)).all) == pytest.approx(math.sqrt(1.5 * 0.75))
    assert round(math.sqrt(1.5 * 0.75), 3) == 1.061
    assert float(smallest_composite(x).value) == pytest.approx(1.0, abs=1e-12)


# --- the least, against other routes -------------------------------------------------------------


def least_rows(x: np.ndarray, bound: float) -> float:
    """The least |X - 1x'|_inf with |X - 1x'|_1 <= bound, by a linear program."""
    n, d = x.shape
    size = d + n * d + 1
    rows: list[np.ndarray] = []
    limits: list[float] = []
    for i in range(n):
        for j in range(d):
            for sign in (1.0, -1.0):
                row = np.zeros(size)
                row[j], row[d + i * d + j] = -sign, -1.0
                rows.append(row)
                limits.append(-sign * x[i, j])
        row = np.zeros(size)
        row[d + i * d : d + (i + 1) * d], row[-1] = 1.0, -1.0
        rows.append(row)
        limits.append(0.0)
    for j in range(d):
        row = np.zeros(size)
        row[d + j : d + n * d : d] = 1.0
        rows.append(row)
        limits.append(bound)
    cost = np.zeros(size)
    cost[-1] = 1.0
    free = [(None, None)] * d + [(0, None)] * (n * d + 1)
    solved = linprog(cost, A_ub=np.array(rows), b_ub=np.array(limits), bounds=free)
    return float(solved.fun) if solved.status == 0 else math.inf


def least_by_programs(x: np.ndarray) -> float:
    """min over F of sqrt(F G(F)), G(F) the least |.|_inf with |.|_1 <= F, on a fine row of F."""
    least = float(np.abs(x - np.median(x, 0)).sum(0).max())
    top = slowly(torch.tensor(x - x.mean(0))) ** 2 / least_rows(x, 1e9)
    found = math.inf
    for bound in np.linspace(least * (1 + 1e-9), top, 60):
        found = min(found, math.sqrt(bound * least_rows(x, bound)))
    return found


@pytest.mark.parametrize(("tokens", "width"), [(3, 2), (5, 3), (4, 5)])
@pytest.mark.parametrize("kind", ["normal", "skewed", "whole"])
def test_the_least_is_found_to_a_fifth_of_a_percent(tokens: int, width: int, kind: str) -> None:
    generator = np.random.default_rng(tokens)
    x = generator.normal(size=(tokens, width))
    if kind == "skewed":
        x = generator.exponential(size=(tokens, width)) ** 2
    elif kind == "whole":
        x = generator.integers(0, 3, size=(tokens, width)).astype(float)
    exact = least_by_programs(x)
    found = smallest_composite(torch.tensor(x)[None])
    assert float(found.lower) <= exact * (1 + 1e-9)
    assert exact * (1 - 2e-3) <= float(found.value) <= exact * (1 + 2e-3)


def test_no_point_of_a_fine_grid_is_better() -> None:
    x = torch.tensor([[0.0, 0.3], [2.0, -1.0], [0.1, 0.2], [-0.4, 0.9], [0.2, 0.1]]).double()
    grid = torch.linspace(-1.5, 2.5, 401, dtype=torch.float64)
    at = torch.cartesian_prod(grid, grid)
    best = float(composite(x - at.unsqueeze(1)).min())
    found = smallest_composite(x[None])
    assert float(found.value) == pytest.approx(best, rel=5e-3)
    assert float(found.lower) <= best


def test_the_least_is_never_above_mean_median_and_middle() -> None:
    for seed in range(10):
        x = drawn(2, 7, 5, seed=seed) ** 3
        for at in (x.mean(1), x.median(1).values, (x.amax(1) + x.amin(1)) / 2):
            assert bool((smallest_composite(x).value <= composite(x - at.unsqueeze(1))).all())


def test_longer_searches_gain_little_and_the_bound_is_close() -> None:
    x = drawn(2, 48, 96)
    x[1, 0] *= 20
    short, long = smallest_composite(x), smallest_composite(x, steps=600)
    assert bool((short.value <= long.value * 1.01).all())
    assert bool((short.lower <= long.value).all())
    assert float(short.lower[0] / short.value[0]) > 0.98
    assert float(short.lower[1] / short.value[1]) > 0.6


def test_two_tokens_are_best_seen_from_their_middle() -> None:
    """Every sum is |a - b| then: columns are fixed, rows are halved."""
    x = torch.tensor([[[1.0, 5.0, -2.0], [3.0, 4.0, -2.0]]])
    found = smallest_composite(x)
    assert float(found.value) == pytest.approx(math.sqrt(2.0 * 1.5), rel=1e-6)
    assert float(found.lower) == pytest.approx(math.sqrt(2.0 * 1.5), rel=1e-6)


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e200])
def test_the_least_grows_with_its_tokens(scale: float) -> None:
    x = drawn(1, 6, 4)
    plain, scaled = smallest_composite(x), smallest_composite(x * scale)
    assert float(scaled.value) == pytest.approx(float(plain.value) * scale, rel=1e-6)
    assert float(scaled.lower) == pytest.approx(float(plain.lower) * scale, rel=1e-6)


def test_a_common_vector_changes_nothing() -> None:
    x = drawn(1, 6, 4)
    moved = smallest_composite(x + 1e3 * drawn(1, 1, 4, seed=9))
    assert float(moved.value) == pytest.approx(float(smallest_composite(x).value), rel=1e-6)


def test_equal_tokens_have_no_residual() -> None:
    x = drawn(1, 1, 4).expand(2, 5, 4)
    assert smallest_composite(x).value.tolist() == [0.0, 0.0]
    assert smallest_composite(x).lower.tolist() == [0.0, 0.0]
    assert composite_residual(Tokens(x)).all.tolist() == [0.0, 0.0]


def test_an_example_that_is_not_finite_has_nan_alone() -> None:
    x = drawn(3, 5, 4)
    x[1, 2, 0] = float("inf")
    found = smallest_composite(x)
    assert found.value.isnan().tolist() == [False, True, False]
    assert found.lower.isnan().tolist() == [False, True, False]
    alone = smallest_composite(x[[0, 2]])
    assert torch.allclose(found.value[[0, 2]], alone.value, rtol=1e-5)


def test_examples_in_several_lots_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x = drawn(3, 5, 4)
    whole = smallest_composite(x)
    monkeypatch.setattr(module, "_AT_ONCE", 20)
    parts = smallest_composite(x)
    assert torch.allclose(parts.value, whole.value, rtol=1e-5)
    assert torch.allclose(parts.lower, whole.lower, rtol=1e-5)


# --- tokens ----------------------------------------------------------------------------------------


def test_residual_and_size_with_and_without_the_first_token() -> None:
    x = drawn(2, 6, 4)
    residual, size = composite_residual(Tokens(x)), composite_size(Tokens(x))
    for example in range(2):
        rest = x[example, 1:]
        assert float(residual.all[example]) == pytest.approx(
            slowly(x[example] - x[example].mean(0))
        )
        assert float(residual.rest[example]) == pytest.approx(slowly(rest - rest.mean(0)))
        assert float(size.all[example]) == pytest.approx(slowly(x[example]))
        assert float(size.rest[example]) == pytest.approx(slowly(rest))


def test_a_residual_far_below_the_stream_keeps_its_digits() -> None:
    x, common = drawn(1, 6, 4) * 1e-9, drawn(1, 1, 4, seed=5)
    found = float(composite_residual(Tokens(x + common)).all)
    assert found == pytest.approx(slowly(x[0] - x[0].mean(0)), rel=1e-6)


def test_padding_is_left_out() -> None:
    x = drawn(2, 6, 4)
    mask = torch.ones(2, 6, dtype=torch.bool)
    mask[1, 4:] = False
    tokens = Tokens(x, mask)
    assert float(composite_residual(tokens).all[1]) == pytest.approx(
        slowly(x[1, :4] - x[1, :4].mean(0))
    )
    alone = smallest_composite(x[1:, :4])
    assert float(smallest_composite_residual(tokens).value[1]) == pytest.approx(
        float(alone.value), rel=1e-6
    )
    values = token_singular_values(tokens, 8)
    exact = [torch.linalg.svdvals(x[0]), torch.linalg.svdvals(x[1, :4])]
    assert len(values) == 4
    for rank, found in enumerate(values):
        assert found.tolist() == pytest.approx([float(one[rank]) for one in exact])


def test_one_token_has_no_residual_and_no_singular_values() -> None:
    x = Tokens(drawn(2, 1, 4))
    assert composite_residual(x).all.numel() == 0
    assert smallest_composite_residual(x).value.numel() == 0
    assert token_singular_values(x, 8) == []
    pair = Tokens(drawn(2, 2, 4))
    assert composite_residual(pair).all.numel() == 2 and composite_residual(pair).rest.numel() == 0


def test_shorter_examples_have_fewer_singular_values() -> None:
    x = drawn(2, 5, 9)
    mask = torch.ones(2, 5, dtype=torch.bool)
    mask[0, 2:] = False
    values = token_singular_values(Tokens(x, mask), 3)
    assert [len(one) for one in values] == [2, 2, 1]
