"""What a branch is: a module that is called with x [example, token, width] and the running pass.

It returns an update of the same shape, names the weights that an init draws, and asks the
placement for the norms inside it. Attention and MLP have a catalog each, because a recipe chooses
one of each; "none" leaves that branch out of every layer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from leadline.catalog import Catalog

__all__ = ["ATTENTIONS", "MLPS", "Branch", "Inside", "Run", "linear"]

Inside = Callable[[str, int], nn.Module | None]
"""The placement's norms inside a branch: point and width to a module or None."""

ATTENTIONS: Catalog[Any] = Catalog(
    "attention",
    package="leadline.parts.branches.attention",
    group="leadline.attentions",
    arguments=("place", "inside"),
)
MLPS: Catalog[Any] = Catalog(
    "mlp",
    package="leadline.parts.branches.mlp",
    group="leadline.mlps",
    arguments=("place", "inside"),
)


class Rotation(Protocol):
    """Turns queries and keys by their positions."""

    def __call__(self, x: Tensor, /) -> Tensor: ...


class KeyValues(Protocol):
    """Where keys and values of earlier tokens are kept."""

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]: ...


@dataclass
class Run:
    """What all layers of one forward pass share."""

    mask: Tensor | None = None
    """[example or 1, 1, query, key], True where a query may look; None where nothing is hidden."""
    causal: bool = False
    """Whether the kernel itself hides later tokens; the mask is None then."""
    rotate: Rotation | None = None
    cache: KeyValues | None = None
    shared: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    """What an early layer leaves for later ones: the first values."""


class Branch(nn.Module, ABC):
    """Computes the update of a sublayer from x and the running pass: attention or MLP."""

    causal: bool | None = None
    """Whether later tokens are hidden; None where tokens do not see each other at all."""
    shares: bool = False
    """Whether it leaves something in `run.shared` for later layers, or takes it from there."""

    @abstractmethod
    def forward(self, x: Tensor, run: Run) -> Tensor:
        """The update for x."""

    @abstractmethod
    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Roles and weights: query, key, value, output, up, gate, down."""


def linear(width: int, out: int, *, bias: bool) -> nn.Linear:
    """A linear map whose weight is left to the init, with a zero bias."""
    # Nothing is drawn on `meta`. What skip_init does from there on imports the half of torch that
    # belongs to its compiler, which takes half a second.
    layer = nn.Linear(width, out, bias=bias, device="meta")
    layer.weight = nn.Parameter(torch.empty(out, width))
    if bias:
        layer.bias = nn.Parameter(torch.zeros(out))
    return layer
