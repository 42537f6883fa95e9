"""The gated residual: the stream decides, feature by feature, how much of the update it takes.

    x' = x + sigmoid(W x + b) u

The gate [width, width] reads the stream itself, not the normed copy that the branch reads. W is
drawn by the recipe's init; b is 0 and stands only with `bias`. At initialisation W x is small or
has mean 0, so the gate is about 1/2: exactly 1/2 where W is 0. The stream itself is never gated
(`highway` gates both). No paper. It costs width^2 weights per write, and as much work as the
output projection of attention.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from leadline.parts.connections._connection import CONNECTIONS, Connection
from leadline.parts.options import flag
from leadline.parts.place import Place


@CONNECTIONS.register("gated")
class GatedResidual(Connection):
    """x + sigmoid(W x) u: a learned gate on every feature of the update."""

    formula = "x + sigmoid(W x) u"

    def __init__(self, place: Place, *, bias: bool = False) -> None:
        super().__init__(place)
        self.weight = nn.Parameter(torch.zeros(place.width, place.width))
        self.bias = nn.Parameter(torch.zeros(place.width)) if flag("gated", "bias", bias) else None

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return torch.addcmul(state, self.gate(state), update)

    def split(self, state: Tensor, update: Tensor) -> tuple[Tensor, Tensor]:
        return state, self.gate(state) * update

    def gate(self, stream: Tensor) -> Tensor:
        """How much of each feature of the update is written, from 0 to 1."""
        return torch.sigmoid(F.linear(stream, self.weight, self.bias))

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        yield "gate of the connection", self.weight
