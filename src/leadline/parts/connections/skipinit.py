"""SkipInit: one learned number per write in place of a norm in the branch.

    x' = x + a u,        a = start at initialisation

De and Smith 2020, arXiv 2002.10444. start = 0; the paper finds any value up to 1 / sqrt(number of
writes) good. As a write it is the same as ReZero; what differs is where it comes from: batch norm
in a branch makes its output small beside the stream by about sqrt(depth), and a learned number
does that without the norm. ReZero fixes the start at 0 and takes the layer norms out of a
Transformer; SkipInit takes the batch norms out of a ResNet and keeps the choice of the start. The
facts below are those of start = 0. It costs one number per write.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leadline.parts.connections._connection import CONNECTIONS, Connection
from leadline.parts.options import number
from leadline.parts.place import Place


@CONNECTIONS.register("skipinit")
class SkipInit(Connection):
    """x + a u with one learned a per write, which starts at 0 or a small number."""

    formula = "x + a u, a = 0 at first"
    starts_as = "identity"
    keep = 1.0
    gain = "alpha"

    def __init__(self, place: Place, *, start: float = 0.0) -> None:
        super().__init__(place)
        self.alpha = nn.Parameter(torch.tensor(number("skipinit", "start", start)))
        self.starts_as = "plain" if start == 1.0 else "identity" if start == 0.0 else None

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return torch.addcmul(state, self.alpha, update)

    def split(self, state: Tensor, update: Tensor) -> tuple[Tensor, Tensor]:
        return state, self.alpha * update
