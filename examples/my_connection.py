"""A connection of your own: one file, one decorator. This one gives the stream momentum.

    v' = g v + (1 - g) u        x' = x + v'

Sander et al. 2021 (Momentum Residual Neural Networks), arXiv 2102.07870, in their symbols but for
g, which is their gamma (0.9). The velocity v starts at 0 and travels beside the stream x. It costs
no parameters, and the memory of a second stream.

Check it, see it listed, measure it:

    leadline check examples/my_connection.py
    leadline list connections --plugin examples/my_connection.py
    leadline explain momentum --plugin examples/my_connection.py
    leadline measure --recipe default --set "connection=momentum(momentum=0.5)" \\
        --plugin examples/my_connection.py
"""

import torch

from leadline.errors import RecipeError
from leadline.parts.connections import CONNECTIONS, Connection
from leadline.parts.place import Place


@CONNECTIONS.register("momentum")
class Momentum(Connection):
    """x + v with a velocity v that follows the updates slowly."""

    formula = "x + g v + (1 - g) u, and v' = g v + (1 - g) u beside it"
    keeps_identity = False  # the velocity goes on when nothing is written

    def __init__(self, place: Place, *, momentum: float = 0.9) -> None:
        super().__init__(place)
        if not 0.0 <= momentum < 1.0:
            raise RecipeError(f"momentum is {momentum!r}; give a number from 0 to less than 1.")
        self.momentum = momentum

    def open(self, stream: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return stream, torch.zeros_like(stream)

    def split(self, state, update):
        x, v = state
        return x + self.momentum * v, (1.0 - self.momentum) * update

    def write(self, state, update):
        kept, written = self.split(state, update)
        return kept + written, self.momentum * state[1] + written
