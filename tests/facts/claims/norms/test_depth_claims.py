"""What the notes say about signal and gradient over depth, before training."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from leadline.claims.measure.before_training import (
    Flow,
    draw_model,
    fit_power,
    seed_of_draw,
)
from leadline.claims.ruling import Ruling
from leadline.experiments.gradient_flow import starts as _flow_start
from leadline.parts.connections.weighted import Weighted
from leadline.theory import residual_products
from leadline.theory.depth import _stream_law, unnormed_stream, xiong_last_gradient

Ruled = Callable[..., Ruling]

VERDICTS = {
    "gradient-never-zero": ("false as stated", "holds"),
    "last-gradient-over-depth": ("holds", None),
    "layernorm-keeps-gradients": ("holds", None),
    "layernorm-lowers-variance": ("false as stated", "holds"),
    "no-skip-with-norm-vanishes": ("false as stated", "holds"),
    "norm-steadies-inputs": ("holds under conditions", "holds"),
    "norms-break-the-path": ("false as stated", "holds"),
    "plain-gradients-vanish": ("holds under conditions", "holds"),
    "post-norm-early-gradients-tiny": ("false as stated", "holds"),
    "pre-norm-blocks-near-identity": ("false as stated", "holds"),
    "pre-norm-gradient-order-one": ("holds under conditions", "holds"),
    "skip-preserves-variance": ("false as stated", "holds"),
    "stream-accumulates": ("holds under conditions", "holds"),
    "unnormed-mean-shifts": ("holds under conditions", "holds"),
    "unnormed-variance-grows": ("holds under conditions", "holds"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(VERDICTS))
def test_the_numbers_rule(name: str, ruled_on_kept: Ruled) -> None:
    found = ruled_on_kept(name)
    assert (found.verdict, found.correction) == VERDICTS[name]


def test_a_kept_trial_is_read_back() -> None:
    flow = Flow(
        {
            str(depth): {
                "weight": depth**-0.5,
                "gradients": [8.0, 1.0, 2.0],
                "squares": [2.0, 3.0, 10.0],
                "cosine": 0.5,
            }
            for depth in (12, 48)
        }
    )
    assert (flow.ratio[12], flow.least[12], flow.growth[12]) == (4.0, 0.5, 5.0)
    assert flow.relative[48] == [4.0, 0.5, 1.0]
    assert flow.number("cosine", 12) == 0.5
    assert fit_power({d: flow.number("weight", d) for d in (12, 48)}) == pytest.approx(-0.5)


def test_every_draw_of_every_seed_is_another_one() -> None:
    seeds = [seed_of_draw(seed, draw) for seed in range(5) for draw in range(16)]
    assert len(set(seeds)) == len(seeds)


def test_the_last_matrix_has_the_gradient_of_finite_differences() -> None:
    import torch

    model = draw_model("pre", 12, 0, length=8).double()
    batch = _flow_start.batch_of(8, examples=2, seed=0)
    start = _flow_start.measured(model, batch, design="pre", seed=0)
    matrix = _flow_start.last_matrix(model)
    direction = torch.randn(
        matrix.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    step = 1e-6 / float(direction.norm())
    losses: list[float] = []
    for sign in (1.0, -1.0):
        with torch.no_grad():
            matrix.add_(sign * step * direction)
            losses.append(float(model.loss(batch.ids, batch.targets)))
            matrix.sub_(sign * step * direction)
    (gradient,) = torch.autograd.grad(model.loss(batch.ids, batch.targets), [matrix])
    slope = (losses[0] - losses[1]) / (2.0 * step)
    assert slope == pytest.approx(float((gradient * direction).sum()), rel=1e-5)
    assert start.weight == pytest.approx(float(gradient.norm()), rel=1e-10)


# --- mutations -------------------------------------------------------------------------------


@pytest.mark.slow
def test_exchanged_exponents_of_the_theorem_are_noticed(
    monkeypatch: pytest.MonkeyPatch, ruled_on_kept: Ruled
) -> None:
    monkeypatch.setattr(xiong_last_gradient, "_EXPONENTS", {"post": -0.5, "pre": 0.0})
    assert ruled_on_kept("last-gradient-over-depth").verdict == "false as stated"


@pytest.mark.slow
def test_a_law_of_the_stream_without_attention_is_noticed(
    monkeypatch: pytest.MonkeyPatch, ruled_on_kept: Ruled
) -> None:
    def nothing(facts: Any, q: float = 1.0) -> float:
        return 0.1

    monkeypatch.setattr(_stream_law, "attention_write", nothing)
    assert ruled_on_kept("skip-preserves-variance").correction == "fails"
    monkeypatch.setattr(unnormed_stream, "attention_write", nothing)
    assert ruled_on_kept("unnormed-variance-grows").correction == "fails"


@pytest.mark.slow
def test_a_lower_end_that_is_an_upper_one_is_noticed(
    monkeypatch: pytest.MonkeyPatch, ruled_on_kept: Ruled
) -> None:
    real = residual_products.product_band

    def mutant(norms: Any) -> Any:
        band = real(norms)
        return type(band)(band.log_upper, band.log_upper, band.total)

    monkeypatch.setattr(residual_products, "product_band", mutant)
    assert ruled_on_kept("gradient-never-zero").correction == "fails"


@pytest.mark.slow
def test_a_jacobian_that_does_not_divide_by_the_size_is_noticed(
    monkeypatch: pytest.MonkeyPatch, ruled_on_kept: Ruled
) -> None:
    from leadline.theory import norm_jacobian

    real = norm_jacobian.layer_norm_jacobian

    def mutant(x: Any, *, gamma: Any = None, eps: float = 1e-5) -> Any:
        scale = math.sqrt(float(np.var(np.asarray(x))) + eps)
        return scale * real(x, gamma=gamma, eps=eps)

    monkeypatch.setattr(norm_jacobian, "layer_norm_jacobian", mutant)
    assert ruled_on_kept("gradient-never-zero").verdict == "holds"


@pytest.mark.slow
@pytest.mark.parametrize(("write", "times"), [("mlp_write", 2.0), ("attention_write", 3.0)])
def test_a_law_with_larger_writes_is_noticed(
    write: str, times: float, monkeypatch: pytest.MonkeyPatch, ruled_on_kept: Ruled
) -> None:
    real = getattr(unnormed_stream, write)

    def mutant(facts: Any, q: float = 1.0) -> float:
        return times * real(facts, q)

    monkeypatch.setattr(unnormed_stream, write, mutant)
    assert ruled_on_kept("unnormed-variance-grows").correction == "fails"


@pytest.mark.slow
def test_updates_divided_by_the_root_of_the_layers_alone_are_noticed(
    monkeypatch: pytest.MonkeyPatch, ruled_on_kept: Ruled
) -> None:
    def mutant(self: Weighted, state: Any, update: Any) -> Any:
        assert isinstance(self.gain, float)
        return state + math.sqrt(2.0) * self.gain * update

    monkeypatch.setattr(Weighted, "write", mutant)
    assert ruled_on_kept("unnormed-variance-grows", seeds=(0,)).correction == "fails"
