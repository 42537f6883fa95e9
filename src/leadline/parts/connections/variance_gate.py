"""The variance-keeping gate: one learned number per feature shares unit variance out.

    x' = a x + b u,     b = sigmoid(w / T),     a = sqrt(sigmoid(-w / T) (1 + b))

sigmoid(-z) = 1 - b, so a^2 = (1 - b)(1 + b) and a^2 + b^2 = 1 in every feature. w is a vector
[width]. T = 0.3 (`temperature`), and a^2 is never below 1e-3 (`eps`), or the gradient of the root
would grow without bound; there a^2 + b^2 is a little above 1. So it stands in the Muse Spark
models of Hugging Face transformers, where w is drawn around 0; here w starts at 0 (`start`):
b = 1/2, a = sqrt(3)/2. It costs width numbers per write.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leadline.parts.connections._connection import CONNECTIONS, Connection
from leadline.parts.options import number
from leadline.parts.place import Place


@CONNECTIONS.register("variance_gate")
class VarianceGate(Connection):
    """a x + b u with a^2 + b^2 = 1 and a learned b for every feature."""

    formula = "a x + b u, b = sigmoid(w / T), a^2 + b^2 = 1"
    keeps_identity = False
    keeps_variance = True

    def __init__(
        self,
        place: Place,
        *,
        temperature: float = 0.3,
        eps: float = 1e-3,
        start: float = 0.0,
    ) -> None:
        super().__init__(place)
        self.temperature = number(
            "variance_gate",
            "temperature",
            temperature,
            wanted="a number above 0",
            fits=lambda v: v > 0.0,
        )
        self.eps = number(
            "variance_gate",
            "eps",
            eps,
            wanted="a number above 0 and below 1",
            fits=lambda v: 0.0 < v < 1.0,
        )
        first = number("variance_gate", "start", start)
        self.gate = nn.Parameter(torch.full((place.width,), first))

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        a, b = self.factors()
        return torch.addcmul(a * state, b, update)

    def split(self, state: Tensor, update: Tensor) -> tuple[Tensor, Tensor]:
        a, b = self.factors()
        return a * state, b * update

    def factors(self) -> tuple[Tensor, Tensor]:
        """a and b, each [width]."""
        z = self.gate / self.temperature
        b = torch.sigmoid(z)
        return (torch.sigmoid(-z) * (1.0 + b)).clamp(min=self.eps).sqrt(), b
