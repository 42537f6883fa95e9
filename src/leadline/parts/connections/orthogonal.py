"""Orthogonal update: only what points away from the stream is added.

    x' = x + u - (<x, u> / <x, x>) x

Oh et al. 2025, arXiv 2505.11881, in its feature-wise form: the products run over the features of
one token. Where <x, x> is below eps = 1e-6, eps stands in its place; the released code adds 1e-6
to it always, which lets 1e-6 / <x, x> of the parallel part through: much, for a small embedding.
Here x' - x is orthogonal to x to rounding, so the norm of the stream never falls. For branches
that would only stretch or shrink the stream. It costs no parameter, two inner products and one
more addition per write; they are computed in float32 at least.
"""

from __future__ import annotations

import torch
from torch import Tensor

from leadline.parts.connections._connection import CONNECTIONS, Connection
from leadline.parts.options import number
from leadline.parts.place import Place


@CONNECTIONS.register("orthogonal")
class Orthogonal(Connection):
    """x + the part of u that is orthogonal to x."""

    formula = "x + u - (<x, u> / <x, x>) x"

    def __init__(self, place: Place, *, eps: float = 1e-6) -> None:
        super().__init__(place)
        self.eps = number(
            "orthogonal", "eps", eps, wanted="a number above 0", fits=lambda value: value > 0.0
        )

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        kept, written = self.split(state, update)
        return kept + written

    def split(self, state: Tensor, update: Tensor) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(state.dtype, torch.float32)
        x, u = state.to(wide), update.to(wide)
        along = (x * u).sum(-1, keepdim=True)
        square = (x * x).sum(-1, keepdim=True).clamp_min(self.eps)
        return state, (u - (along / square) * x).to(state.dtype)
