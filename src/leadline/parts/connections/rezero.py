"""ReZero: one learned number per write, zero at the start.

    x' = x + a u,        a = 0 at initialisation

Bachlechner et al. 2020, arXiv 2003.04887. Made to train without norms: placement none. In the
released code both sublayers of a layer share one a; here every write has its own. At the start
the model is the identity and the branches get no gradient at all: only a moves in the first step.
It costs one number per write.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leadline.parts.connections._connection import CONNECTIONS, Connection
from leadline.parts.place import Place


@CONNECTIONS.register("rezero")
class ReZero(Connection):
    """x + a u with one learned a per write, which starts at 0."""

    formula = "x + a u, a = 0 at first"
    starts_as = "identity"
    keep = 1.0
    gain = "alpha"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.alpha = nn.Parameter(torch.zeros(()))

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return torch.addcmul(state, self.alpha, update)

    def split(self, state: Tensor, update: Tensor) -> tuple[Tensor, Tensor]:
        return state, self.alpha * update
