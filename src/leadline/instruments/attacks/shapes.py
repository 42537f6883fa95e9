"""Which self-attention networks are drawn for the search for violations of bounds on collapse.

A kind says which hypotheses its networks keep to, a shape what the networks of a batch have in
common. Sizes of tensors are drawn evenly in the logarithm; tensors are Gaussian, sparse, of rank
one, a single entry, rows of a signed permutation, or signs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

__all__ = [
    "PER_CLIMB",
    "PER_SHAPE",
    "RANGES",
    "STACK_KINDS",
    "Activation",
    "StackKind",
    "StackShape",
    "draw_shape",
    "structured",
]

Activation = Literal["none", "relu", "gelu"]
PER_SHAPE, PER_CLIMB = 64, 25
"""How many networks of one shape are drawn, and climb, together."""
SPARSITY = 0.3
"""The share of entries that a sparse tensor keeps."""
RANGES = {
    "centre": (1e-2, 1e1),
    "tokens": (1e-3, 1e1),
    "query": (1e-1, 1e1),
    "key": (1e-1, 1e1),
    "value": (1e-1, 1e1),
    "output": (1e-1, 1e1),
    "up": (1e-1, 1e1),
    "down": (1e-1, 1e1),
    "query_bias": (1e-2, 1e1),
    "output_bias": (1e-2, 1e1),
    "up_bias": (1e-2, 1e1),
    "down_bias": (1e-2, 1e1),
}
"""Between which sizes a tensor is drawn, evenly in the logarithm, for every network and layer."""


@dataclass(frozen=True, slots=True)
class StackKind:
    """The hypotheses that the networks of an attack keep to."""

    heads: tuple[int, ...] = (1,)
    mlp: tuple[Activation, ...] = ("none",)
    biased: bool = False
    mask: Literal["none", "causal"] = "none"
    skip: bool = False
    turned: int = 0
    """With a skip: 1 turns every update so that <res X, res U> >= 0, -1 so that it is <= 0."""
    orthogonal: bool = False
    """With a skip: an output bias makes <X, U> = 0, which leaves res U as it is."""


_ALL = (1, 2, 3, 4)
_MLPS: tuple[Activation, ...] = ("relu", "gelu")
STACK_KINDS: dict[str, StackKind] = {
    "one-head": StackKind(),
    "one-head-mlp": StackKind(mlp=_MLPS, biased=True),
    "heads": StackKind(heads=_ALL[1:], biased=True),
    "heads-mlp": StackKind(heads=_ALL[1:], mlp=_MLPS),
    "causal": StackKind(heads=_ALL, mask="causal"),
    "skip-aligned": StackKind(heads=_ALL, biased=True, skip=True, turned=1),
    "skip-aligned-mlp": StackKind(heads=_ALL, mlp=_MLPS, skip=True, turned=1),
    "skip": StackKind(heads=_ALL, mlp=("none", *_MLPS), skip=True),
    "skip-orthogonal": StackKind(heads=_ALL, biased=True, skip=True, turned=-1, orthogonal=True),
}


@dataclass(frozen=True, slots=True)
class StackShape:
    """What the networks of a batch have in common. `shared`: one layer's weights in all layers."""

    tokens: int
    width: int
    heads: int
    head_width: int
    depth: int
    hidden: int
    activation: Activation
    shared: bool


def draw_shape(kind: StackKind, *, generator: torch.Generator) -> StackShape:
    """Draw the shape of a batch: 2 to 10 tokens, width 1 to 12, 1 to 3 layers.

    Two tokens and width one come more often: there the bounds are nearest.
    """

    def pick(low: int, high: int) -> int:
        return low + int(torch.randint(high - low + 1, (), generator=generator))

    width = 1 if pick(1, 3) == 1 else pick(1, 12)
    return StackShape(
        tokens=2 if pick(1, 3) == 1 else pick(2, 10),
        width=width,
        heads=kind.heads[pick(0, len(kind.heads) - 1)],
        head_width=(1, 2, width)[pick(0, 2)],
        depth=pick(1, 3),
        hidden=pick(1, 2 * width),
        activation=kind.mlp[pick(0, len(kind.mlp) - 1)],
        shared=pick(1, 4) == 1,
    )


def structured(shape: tuple[int, ...], *, generator: torch.Generator) -> Tensor:
    """Draw matrices each of which is Gaussian, sparse, of rank one, a single entry, rows of a
    signed permutation, or signs."""

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=generator, dtype=torch.float64)

    *lead, rows, columns = shape
    gaussian = normal(*shape)
    kept = torch.rand(shape, generator=generator, dtype=torch.float64) < SPARSITY
    signs = torch.where(normal(*shape) < 0, -1.0, 1.0).to(torch.float64)
    places = torch.rand(*lead, rows * columns, generator=generator, dtype=torch.float64)
    single = (places == places.amax(-1, keepdim=True)).reshape(shape)
    longer = max(rows, columns)
    order = torch.rand(*lead, longer, generator=generator, dtype=torch.float64).argsort(-1)
    permutation = torch.nn.functional.one_hot(order, longer)[..., :rows, :columns]
    variants = torch.stack(
        [
            gaussian,
            gaussian * kept,
            normal(*lead, rows, 1) * normal(*lead, 1, columns),
            signs * single,
            signs * permutation,
            signs,
        ]
    )
    choice = torch.randint(len(variants), (*lead, 1, 1), generator=generator)
    return variants.gather(0, choice.expand(shape)[None])[0]
