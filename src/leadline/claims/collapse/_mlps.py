"""Networks with MLPs and no skip that several claims follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from leadline.experiments.rank_collapse.note_block import note_blocks
from leadline.instruments.collapse.measure import follow
from leadline.instruments.collapse.result import Collapse

__all__ = ["hat_stack", "note_stack", "stretched_stack"]

Step = Callable[[Any], Any]
SPREAD = 0.5
"""The size of the tokens: near enough for a collapse without norms."""


def note_stack(
    seed: int, *, depth: int, width: int, tokens: int, norm: str, factor: float
) -> Collapse:
    """The note's blocks with MLPs and no skip; MLP weights times `factor`, no biases, float64."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.default_generator.manual_seed(seed)
        blocks = note_blocks(depth, width, 1, mlp=True, skip=False, norm=norm, causal=False)
        x = SPREAD * torch.randn(tokens, width, dtype=torch.float64)
        for name, parameter in blocks.double().named_parameters():
            if ".up." in name or ".down." in name:
                parameter.mul_(0.0 if name.endswith("bias") else factor)
        return follow(list(blocks), x, seed=seed)


def stretched_stack(seed: int, *, depth: int, gain: float) -> Collapse:
    """Tokens that share their first feature; the MLP multiplies it by `gain`, keeps the others.

    The MLP is relu(z A) A' diag(gain, 1, ..., 1) with A = (I, -I), which is linear; queries and keys
    do not see the first feature.
    """
    width = 4
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    x = normal(5, width)
    x[:, 0] = 1.0
    one = torch.eye(width, dtype=torch.float64)
    up = torch.cat([one, -one])
    down = up.mT.clone()
    down[0] *= gain
    steps: list[Step] = []
    for _ in range(depth):
        query, key = normal(width, width), normal(width, width)
        query[:, 0], key[:, 0] = 0.0, 0.0
        steps.append(_step(query, key, lambda y: F.linear(F.relu(F.linear(y, up)), down)))
    with torch.no_grad():
        return follow(steps, x, seed=seed)


def hat_stack(*, gain: float, depth: int) -> Collapse:
    """Two tokens of width one; the MLP relu(g z + 1) - relu(g z - 1) - 1 cuts g z off at +-1."""
    one = torch.ones(1, 1, dtype=torch.float64)
    up, down = gain * one.expand(2, 1), torch.tensor([[1.0, -1.0]], dtype=torch.float64)
    edges, shift = torch.tensor([1.0, -1.0], dtype=torch.float64), -one[0]

    def mlp(y: Any) -> Any:
        return F.linear(F.relu(F.linear(y, up, edges)), down, shift)

    with torch.no_grad():
        return follow([_step(one, one, mlp)] * depth, torch.stack([0.9 * one[0], -0.9 * one[0]]))


def _step(query: Tensor, key: Tensor, mlp: Step) -> Step:
    """Attention of one head with values as they are, then the MLP."""

    def step(x: Any) -> Any:
        runs, tokens, width = x.shape
        one = torch.eye(width, dtype=torch.float64)
        q, k, v = (
            F.linear(x, weight).view(runs, tokens, 1, -1).transpose(1, 2)
            for weight in (query, key, one)
        )
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        return mlp(mixed.reshape(runs, tokens, width))

    return step
