"""Where a part stands in the model: which layer, which write, how deep and how wide.

Layers count from 1, like everywhere; layer 0 is the embedding and the head. `writes` is the
number of residual additions of the whole stack, which papers that count sublayers call L or N
and which is twice the depth in a stack of attention and MLP.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

__all__ = ["Place"]


@dataclass(frozen=True)
class Place:
    """The address of one sublayer, with what its parts are built from."""

    width: int
    heads: int
    depth: int
    layer: int
    sublayer: int = 1
    sublayers: int = 2
    norm: Callable[[int], nn.Module | None] = nn.LayerNorm
    """Makes a norm of the given width, or None where the recipe has no norms."""
    branch: str = "attention"
    """What computes here: attention, mlp, or joined where both are one write."""

    @property
    def write(self) -> int:
        """Which residual addition of the stack this is, from 1."""
        return (self.layer - 1) * self.sublayers + self.sublayer

    @property
    def writes(self) -> int:
        """How many residual additions the stack has."""
        return self.depth * self.sublayers

    @property
    def ends_layer(self) -> bool:
        """Whether this is the last write of its layer."""
        return self.sublayer == self.sublayers

    @property
    def ends_stack(self) -> bool:
        """Whether this is the last write of the stack."""
        return self.write == self.writes
