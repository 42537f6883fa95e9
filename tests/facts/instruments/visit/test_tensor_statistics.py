"""Numbers of a tensor against NumPy, and grids and ranks that are known beforehand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from leadline.instruments.visit.tensor_statistics import grid_share, rank_share, read_tensor


def test_statistics_are_those_of_numpy() -> None:
    values = torch.randn(50, 30, generator=torch.Generator().manual_seed(0))
    values[3] = 0.0
    array = values.double().numpy()
    numbers = read_tensor(values)
    rows = np.linalg.norm(array, axis=1)
    assert numbers.rms == pytest.approx(np.sqrt((array**2).mean()))
    assert numbers.mean == pytest.approx(array.mean())
    assert numbers.largest == np.abs(array).max()
    assert numbers.kurtosis == pytest.approx((array**4).mean() / (array**2).mean() ** 2)
    assert numbers.zeros == 1 / 50
    assert numbers.zero_rows == 1 / 50
    assert numbers.zero_columns == 0
    assert numbers.row_spread == pytest.approx(np.log(rows[rows > 0]).std(ddof=1))
    assert numbers.column_spread == pytest.approx(np.log(np.linalg.norm(array, axis=0)).std(ddof=1))


def test_values_that_are_not_finite_are_counted_and_left_out() -> None:
    numbers = read_tensor(torch.tensor([[1.0, float("nan")], [float("inf"), 1.0]]))
    assert numbers.not_finite == 2
    assert numbers.rms == pytest.approx(np.sqrt(0.5))


def test_rank_is_the_inner_width_of_a_thin_product() -> None:
    generator = torch.Generator().manual_seed(0)
    full = torch.randn(64, 64, generator=generator)
    thin = full[:, :8] @ torch.randn(8, 64, generator=generator)
    assert rank_share(full) == 1.0
    assert rank_share(thin) == 8 / 64


@pytest.mark.parametrize(("levels", "axis"), [(127, 1), (7, 1), (127, 0)])
def test_quantised_values_lie_on_a_grid(levels: int, axis: int) -> None:
    values = torch.randn(64, 96, generator=torch.Generator().manual_seed(0))
    step = values.abs().amax(axis, keepdim=True) / levels
    assert grid_share((values / step).round() * step) == 1.0


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16])
def test_half_precision_is_no_grid(kind: torch.dtype) -> None:
    values = torch.randn(64, 96, generator=torch.Generator().manual_seed(0)) * 0.02
    assert grid_share(values.to(kind).float()) == 0.0
