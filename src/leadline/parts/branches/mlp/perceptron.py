"""The two shapes of an MLP: plain and gated.

    plain:   W_2 f(W_1 x + b_1) + b_2
    gated:   W_2 (f(W_g x) * W_1 x)

`hidden` is the inner width: four times the width for the plain one; two thirds of that for the
gated one, rounded up to a multiple of 8, so that both have about as many weights (Shazeer 2020,
arXiv 2002.05202).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from torch import Tensor

from leadline.parts.branches.branch import Branch, Inside, Run, linear
from leadline.parts.options import flag, whole_number
from leadline.parts.place import Place

__all__ = ["Gated", "Plain", "gated_width"]

Activation = Callable[[Tensor], Tensor]


class Plain(Branch):
    """Two linear maps with an activation between them."""

    activation: Activation

    def __init__(
        self, place: Place, inside: Inside, *, hidden: int | None = None, bias: bool = True
    ) -> None:
        super().__init__()
        hidden = 4 * place.width if hidden is None else whole_number("mlp", "hidden", hidden)
        bias = flag("mlp", "bias", bias)
        self.up = linear(place.width, hidden, bias=bias)
        self.down = linear(hidden, place.width, bias=bias)
        self.hidden_norm = inside("hidden", hidden)

    def forward(self, x: Tensor, run: Run) -> Tensor:
        hidden = self.activation(self.up(x))
        if self.hidden_norm is not None:
            hidden = self.hidden_norm(hidden)
        return self.down(hidden)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        yield "up", self.up.weight
        yield "down", self.down.weight


class Gated(Branch):
    """Two linear maps multiplied, one through an activation, and a third one. Gate first."""

    activation: Activation

    def __init__(
        self, place: Place, inside: Inside, *, hidden: int | None = None, bias: bool = False
    ) -> None:
        super().__init__()
        hidden = (
            gated_width(place.width) if hidden is None else whole_number("mlp", "hidden", hidden)
        )
        bias = flag("mlp", "bias", bias)
        self.gate_up = linear(place.width, 2 * hidden, bias=bias)
        self.down = linear(hidden, place.width, bias=bias)
        self.hidden_norm = inside("hidden", hidden)

    def forward(self, x: Tensor, run: Run) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, -1)
        hidden = self.activation(gate) * up
        if self.hidden_norm is not None:
            hidden = self.hidden_norm(hidden)
        return self.down(hidden)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        gate, up = self.gate_up.weight.chunk(2)
        yield "gate", gate
        yield "up", up
        yield "down", self.down.weight


def gated_width(width: int) -> int:
    """8/3 of the width, rounded up to a multiple of 8."""
    return 8 * math.ceil(width / 3)
