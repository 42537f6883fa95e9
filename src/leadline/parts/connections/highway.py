"""Highway: a gate per feature decides how much of the update replaces the stream.

    T = sigmoid(W x + b),        x' = (1 - T) x + T u

Srivastava, Greff and Schmidhuber 2015, arXiv 1505.00387: T is their transform gate, 1 - T the
carry gate, u their H(x). W is drawn by the recipe's init. b starts below 0, so that the stream is
carried at first; the paper names -1 and -3 as examples, here it is -2, where a gate of W x = 0
lets 0.119 of the update in. For comparison with the plain connection: here every feature that is
written is taken from the stream. It costs width^2 + width parameters and one product with W per
write.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from leadline.parts.connections._connection import CONNECTIONS, Connection
from leadline.parts.options import number
from leadline.parts.place import Place


@CONNECTIONS.register("highway")
class Highway(Connection):
    """(1 - T) x + T u with a learned gate T per feature, nearly closed at first."""

    formula = "(1 - T) x + T u, T = sigmoid(W x + b)"
    keeps_identity = False

    def __init__(self, place: Place, *, bias: float = -2.0) -> None:
        super().__init__(place)
        start = number("highway", "bias", bias)
        self.transform = nn.Linear(place.width, place.width)
        nn.init.constant_(self.transform.bias, start)

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        kept, written = self.split(state, update)
        return kept + written

    def split(self, state: Tensor, update: Tensor) -> tuple[Tensor, Tensor]:
        gate = torch.sigmoid(self.transform(state))
        return (1.0 - gate) * state, gate * update

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        yield "gate of the connection", self.transform.weight
