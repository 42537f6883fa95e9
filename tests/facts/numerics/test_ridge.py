"""The linear readout of the input."""

from __future__ import annotations

import math

import pytest
import torch

from leadline.numerics import reference
from leadline.numerics.ridge import held_out_r2


def _tokens(count: int, width: int, seed: int) -> torch.Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("tokens", "width"), [(40, 8), (30, 50)])
@pytest.mark.parametrize("ridge", [1e-3, 0.1])
def test_the_dual_form_equals_the_primal_form(tokens: int, width: int, ridge: float) -> None:
    x, y = _tokens(tokens, width, 0), _tokens(tokens, 6, 1)
    fast = float(held_out_r2(x, y, ridge=ridge, seed=3))
    assert fast == pytest.approx(reference.held_out_r2(x, y, ridge=ridge, seed=3), rel=1e-5)


def test_a_rotation_loses_nothing() -> None:
    x = _tokens(200, 16, 2)
    rotation = torch.linalg.qr(_tokens(16, 16, 3)).Q
    assert float(held_out_r2(x @ rotation, x, ridge=1e-9, seed=0)) == pytest.approx(1.0, abs=1e-6)


def test_noise_tells_nothing() -> None:
    assert float(held_out_r2(_tokens(400, 8, 4), _tokens(400, 8, 5), ridge=1e-3, seed=0)) < 0.05


def test_half_of_the_features_tell_half_of_the_variance() -> None:
    x = _tokens(4000, 10, 6)
    found = float(held_out_r2(x[:, :5], x, ridge=1e-9, seed=0))
    assert found == pytest.approx(0.5, abs=0.03)


def test_below_four_tokens_there_is_no_answer() -> None:
    assert math.isnan(held_out_r2(_tokens(3, 4, 0), _tokens(3, 4, 1), ridge=1e-3, seed=0))
