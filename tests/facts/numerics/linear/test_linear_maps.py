"""Linear maps known by their products."""

from __future__ import annotations

import torch

from leadline.numerics.linear.linear_maps import (
    ROWS,
    Chain,
    Dense,
    LinearMap,
    Shifted,
    apart,
    dense,
)


def _matrices(seed: int, *, examples: int = 2, size: int = 12) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(examples, size, size, generator=generator, dtype=torch.float64)


def _vectors(given: LinearMap, seed: int, count: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, *given.shape, generator=generator, dtype=given.dtype)


def test_the_matrix_comes_back_from_its_products() -> None:
    matrices = _matrices(0)
    torch.testing.assert_close(dense(Dense(matrices, tokens=3)), matrices)


def test_a_matrix_with_more_rows_than_go_at_once_comes_back() -> None:
    matrices = _matrices(1, examples=1, size=ROWS + 5)
    torch.testing.assert_close(dense(Dense(matrices)), matrices)


def test_tokens_divide_the_rows() -> None:
    assert Dense(_matrices(0), tokens=3).shape == (2, 3, 4)


def test_a_chain_applies_the_first_map_first() -> None:
    first, last = _matrices(2), _matrices(3)
    chain = Chain([Dense(first, tokens=3), Dense(last, tokens=3)])
    torch.testing.assert_close(dense(chain), last @ first)
    v = _vectors(chain, 4)
    expected = torch.einsum("eij,kej->kei", last @ first, v.flatten(2)).view_as(v)
    torch.testing.assert_close(chain.forward(v), expected)


def test_a_shifted_map_lacks_a_multiple_of_the_identity() -> None:
    matrices = _matrices(5)
    shifted = Shifted(Dense(matrices, tokens=2), 1.5)
    expected = matrices - 1.5 * torch.eye(12, dtype=torch.float64)
    torch.testing.assert_close(dense(shifted), expected)
    v = _vectors(shifted, 6)
    torch.testing.assert_close(
        shifted.forward(v), torch.einsum("eij,kej->kei", expected, v.flatten(2)).view_as(v)
    )


def test_forward_and_adjoint_are_transposes_of_each_other() -> None:
    given = Chain([Dense(_matrices(7), tokens=4), Shifted(Dense(_matrices(8), tokens=4), 1.0)])
    u, v = _vectors(given, 9), _vectors(given, 10)
    torch.testing.assert_close(
        (u * given.forward(v)).sum((2, 3)), (given.adjoint(u) * v).sum((2, 3))
    )


def test_vectors_are_as_far_apart_as_the_worst_example_says() -> None:
    one = torch.ones(2, 3, 4, 5).double()
    other = one.clone()
    other[:, 1] = 0.5
    assert apart(one, one) == 0.0
    assert apart(one, other) == 1.0
    assert apart(other, one) == 0.5
    assert apart(torch.zeros_like(one), torch.zeros_like(one)) == 0.0
