"""LayerScale: every feature of the update has a learned gain, small at the start.

    x' = x + g u,        g [width], all equal to `start` at initialisation

Touvron et al. 2021, arXiv 2103.17239 (CaiT). Without `start` it goes by depth as in CaiT: 0.1 up
to 18 layers, 1e-5 up to 24, 1e-6 beyond (their released models of 24 layers have 1e-5, those of
36 and 48 have 1e-6). It costs width numbers per write.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leadline.parts.connections._connection import CONNECTIONS, Connection
from leadline.parts.options import number
from leadline.parts.place import Place


@CONNECTIONS.register("layerscale")
class LayerScale(Connection):
    """x + g u with a learned gain g for every feature, which starts small."""

    formula = "x + g u, g small at first"
    keep = 1.0
    gain = "scale"

    def __init__(self, place: Place, *, start: float | None = None) -> None:
        super().__init__(place)
        value = start_at(place.depth) if start is None else number("layerscale", "start", start)
        self.scale = nn.Parameter(torch.full((place.width,), value))

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return torch.addcmul(state, self.scale, update)

    def split(self, state: Tensor, update: Tensor) -> tuple[Tensor, Tensor]:
        return state, self.scale * update


def start_at(depth: int) -> float:
    """CaiT's first gain for a stack of so many layers."""
    if depth <= 18:
        return 0.1
    return 1e-5 if depth <= 24 else 1e-6
