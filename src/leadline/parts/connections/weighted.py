"""The weighted residual: the update is multiplied by one number.

    x' = x + alpha u

alpha is a number (1: the plain residual) or "depth", which is 1 / sqrt(N) with N = number of
writes, twice the layers: the branch scaling 1 / sqrt(2 L) with which the mean square of the
stream stays of order 1 at any depth and the tokens do not become equal (Noci et al. 2022,
arXiv 2206.03126, whose L counts layers). `learned`: alpha is a parameter that starts there, one
per write. The facts below are those of alpha = 1. It costs nothing, or one number per write.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leadline.parts.connections._connection import CONNECTIONS, Connection
from leadline.parts.options import flag, number
from leadline.parts.place import Place


@CONNECTIONS.register("weighted")
class Weighted(Connection):
    """x + alpha u with a fixed or learned number alpha."""

    formula = "x + alpha u"
    starts_as = "plain"
    keep = 1.0

    def __init__(self, place: Place, *, alpha: float | str = 1.0, learned: bool = False) -> None:
        super().__init__(place)
        if alpha == "depth":
            value = place.writes**-0.5
        else:
            value = number("weighted", "alpha", alpha, wanted="a number or depth")
        self.starts_as = "plain" if value == 1.0 else "identity" if value == 0.0 else None
        if flag("weighted", "learned", learned):
            self.alpha = nn.Parameter(torch.tensor(value))
            self.gain = "alpha"
        else:
            self.gain = value

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        if isinstance(self.gain, float):
            return torch.add(state, update, alpha=self.gain)
        return torch.addcmul(state, self.alpha, update)

    def split(self, state: Tensor, update: Tensor) -> tuple[Tensor, Tensor]:
        return state, (self.gain if isinstance(self.gain, float) else self.alpha) * update
