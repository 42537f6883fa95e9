"""One write at a random stream: the branch's own Jacobian, the norm's, and autograd's of all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from leadline.claims.algebra._networks import (
    built,
    matrix_of,
    stretches_of,
    tokens_of,
    writes_of,
)
from leadline.theory.norm_jacobian import norm_jacobian_of_stream

Matrix = NDArray[np.float64]
DEPTH, LENGTH = 2, 4
SIZES = {"depth": DEPTH, "width": 8, "heads": 2}

__all__ = ["Write", "seen"]


@dataclass(frozen=True)
class Write:
    """What one write consists of, as matrices of tokens x width rows."""

    real: Matrix
    """Its Jacobian by autograd."""
    branch: Matrix
    """F' where the branch reads."""
    norm: Matrix
    """The norm's Jacobian by the closed form: before the branch (pre), after the sum (post)."""


def seen(placement: str, *, seed: int) -> list[Write]:
    """Every write of a small random network with gains that differ by feature."""
    model = built({**SIZES, "placement": placement}, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.LayerNorm):
                drawn = torch.rand(module.weight.shape, generator=generator, dtype=torch.float64)
                module.weight.copy_(0.5 + drawn)
    batch = tokens_of(model, length=LENGTH, seed=seed)
    stretches, passed = stretches_of(model, batch), writes_of(model, batch)
    found: list[Write] = []
    for number, (sublayer, x, run) in enumerate(
        zip(model.sublayers(), passed.states, passed.runs, strict=False)
    ):
        write, at = stretches.sublayer(1 + number // 2, 1 + number % 2)
        enter, settle = sublayer.enter, sublayer.settle

        def branch(v: Tensor, inner: nn.Module = sublayer.branch, r: object = run) -> Tensor:
            return inner(v, r)

        with torch.no_grad():
            read = x if enter is None else enter(x)
            normed = x if settle is None else x + branch(read)
        norm = enter if settle is None else settle
        assert isinstance(norm, nn.LayerNorm)
        found.append(
            Write(
                matrix_of(write, at),
                matrix_of(branch, read),
                norm_jacobian_of_stream(
                    normed[0].numpy(),
                    norm="layernorm",
                    gamma=norm.weight.detach().numpy(),
                    eps=norm.eps,
                ),
            )
        )
    return found
