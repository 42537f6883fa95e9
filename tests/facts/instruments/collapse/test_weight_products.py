"""Sizes of products of weights, against the products themselves."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from leadline.instruments.collapse import weight_products
from leadline.instruments.collapse.weight_products import column_and_row_sums, product_gain


def drawn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("at_once", [1, 40, 1 << 21])
def test_sums_are_those_of_the_product(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_products, "_AT_ONCE", at_once)
    left, right = drawn(3, 7, 2), drawn(3, 2, 11, seed=1)
    columns, rows = column_and_row_sums(left, right)
    whole = (left @ right).abs()
    assert torch.allclose(columns, whole.sum(1).amax(-1), rtol=1e-13)
    assert torch.allclose(rows, whole.sum(2).amax(-1), rtol=1e-13)


@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 2, 5), (40, 8, 40), (7, 9, 3), (60, 60, 60)])
def test_the_gain_is_the_largest_singular_value(shape: tuple[int, int, int]) -> None:
    rows, inner, columns = shape
    left, right = drawn(rows, inner), drawn(inner, columns, seed=1)
    exact = float(torch.linalg.matrix_norm(left @ right, ord=2))
    assert float(product_gain(left, right)) == pytest.approx(exact, rel=5e-7)


def test_the_gain_of_special_matrices() -> None:
    eye = torch.eye(6, dtype=torch.float64)
    assert float(product_gain(eye, 3 * eye)) == pytest.approx(3.0)
    assert float(product_gain(0 * eye, eye)) == 0.0
    assert float(product_gain(eye * 1e-100, eye)) == pytest.approx(1e-100)
    assert bool(product_gain(eye * float("nan"), eye).isnan())
