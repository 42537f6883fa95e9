"""GTrXL: a gated recurrent unit in the place of the addition.

    y = relu(u)
    r = sigmoid(W_r y + U_r x)
    z = sigmoid(W_z y + U_z x - b_g)
    h = tanh(W_g y + U_g (r x))
    x' = (1 - z) x + z h

Parisotto et al. 2019, arXiv 1910.06764, in their symbols; products of vectors are per feature.
b_g starts at 2, which they found to work well for this gate: at first the stream mostly passes
by. Their blocks hand relu(u) to the gate, because two linear maps would otherwise meet; so does
this one, `relu=false` hands over u itself. The six matrices have no bias and are drawn by the
recipe's init. A plain GRU cell, which some code puts here, has no b_g and starts half open. Made
for reinforcement learning, where the plain connection did not train. It costs 6 width^2 + width
parameters and as many products per write; the stream leaves a write between -1 and 1 wherever z
is open.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from leadline.parts.connections._connection import CONNECTIONS, Connection
from leadline.parts.options import flag, number
from leadline.parts.place import Place


@CONNECTIONS.register("gtrxl")
class GTrXL(Connection):
    """(1 - z) x + z h, the gate of a recurrent unit, nearly closed at first."""

    formula = "(1 - z) x + z h, z = sigmoid(W_z y + U_z x - b_g), y = relu(u)"
    keeps_identity = False

    def __init__(self, place: Place, *, bias: float = 2.0, relu: bool = True) -> None:
        super().__init__(place)
        width = place.width
        start = number("gtrxl", "bias", bias)
        self.relu = flag("gtrxl", "relu", relu)
        self.from_update = nn.Linear(width, 3 * width, bias=False)  # W_r, W_z, W_g
        self.from_stream = nn.Linear(width, 2 * width, bias=False)  # U_r, U_z
        self.from_reset = nn.Linear(width, width, bias=False)  # U_g
        self.bias = nn.Parameter(torch.full((width,), start))

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        kept, written = self.split(state, update)
        return kept + written

    def split(self, state: Tensor, update: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.relu(update) if self.relu else update
        reset_u, gate_u, candidate = self.from_update(y).chunk(3, -1)
        reset_x, gate_x = self.from_stream(state).chunk(2, -1)
        r = torch.sigmoid(reset_u + reset_x)
        z = torch.sigmoid(gate_u + gate_x - self.bias)
        h = torch.tanh(candidate + self.from_reset(r * state))
        return (1.0 - z) * state, z * h

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        width = self.place.width
        matrices = (
            *self.from_update.weight.split(width),
            *self.from_stream.weight.split(width),
            self.from_reset.weight,
        )
        for name, matrix in zip(("W_r", "W_z", "W_g", "U_r", "U_z", "U_g"), matrices, strict=True):
            yield f"{name} of the connection", matrix
