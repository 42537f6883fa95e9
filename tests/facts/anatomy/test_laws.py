"""Writes that are no scalar equation, recomputed number by number from their papers' formulas."""

from __future__ import annotations

import math

import pytest
import torch

from leadline.anatomy.families.gated import Affine, VarianceKeeping
from leadline.anatomy.families.hyper_connections import Injected, Mixed, Unmixed

LANES, WIDTH = 3, 4


def _draw(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_mixed_lanes_follow_the_matrix_equation() -> None:
    x, u = _draw(1, 1, LANES, WIDTH, seed=0), _draw(1, 1, WIDTH, seed=1)
    post, comb = _draw(1, 1, LANES, seed=2), _draw(1, 1, LANES, LANES, seed=3)
    kept, update = Mixed(("hc",))(x, u, {"hc": (post, comb, None)})
    for k in range(LANES):
        for d in range(WIDTH):
            by_hand = sum(float(comb[0, 0, j, k]) * float(x[0, 0, j, d]) for j in range(LANES))
            assert float(kept[0, 0, k, d]) == pytest.approx(by_hand)
            assert float(update[0, 0, k, d]) == pytest.approx(
                float(post[0, 0, k]) * float(u[0, 0, d])
            )


def test_lanes_without_mixing_keep_themselves() -> None:
    x, u = _draw(1, 2, LANES, WIDTH, seed=0).float(), _draw(1, 2, WIDTH, seed=1).float()
    post = _draw(1, 2, LANES, seed=2).float()
    kept, update = Unmixed(("hc",))(x, u, {"hc": (post, None)})
    assert torch.equal(kept, x)
    assert float(update[0, 1, 2, 3]) == pytest.approx(float(post[0, 1, 2] * u[0, 1, 3]))


def test_injected_lanes_lie_side_by_side() -> None:
    x, u = _draw(1, 1, LANES * WIDTH, seed=0), _draw(1, 1, WIDTH, seed=1)
    inject = _draw(1, 1, LANES, seed=2)
    kept, update = Injected(("hc",))(x, u, {"hc": (None, None, inject)})
    assert torch.equal(kept, x)
    for k in range(LANES):
        for d in range(WIDTH):
            assert float(update[0, 0, k * WIDTH + d]) == pytest.approx(
                float(inject[0, 0, k]) * float(u[0, 0, d])
            )


@pytest.mark.parametrize(("gate", "temperature"), [(0.0, 1.0), (1.2, 2.0), (-3.0, 0.5)])
def test_the_variance_keeping_gate_lies_on_the_circle(gate: float, temperature: float) -> None:
    law = VarianceKeeping(torch.tensor([gate], dtype=torch.float64), temperature, 1e-3)
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    kept, update = law(one, one, {})
    beta = 1 / (1 + math.exp(-gate / temperature))
    assert float(update) == pytest.approx(beta)
    assert float(kept) == pytest.approx(math.sqrt(1 - beta * beta))
    assert float(kept) ** 2 + float(update) ** 2 == pytest.approx(1.0)


def test_the_gate_never_forgets_the_stream_altogether() -> None:
    law = VarianceKeeping(torch.tensor([50.0], dtype=torch.float64), 1.0, 1e-3)
    kept, _ = law(torch.ones(1, 1, 1, dtype=torch.float64), torch.zeros(1, 1, 1), {})
    assert float(kept) == pytest.approx(math.sqrt(1e-3))


def test_the_affine_write_scales_after_it_shifts() -> None:
    keep, keep_bias = torch.tensor([2.0]), torch.tensor([0.5])
    gain, gain_bias = torch.tensor([3.0]), torch.tensor([-1.0])
    kept, update = Affine(keep, keep_bias, gain, gain_bias)(
        torch.tensor([[[1.0]]]), torch.tensor([[[4.0]]]), {}
    )
    assert float(kept) == 3.0
    assert float(update) == 9.0
