"""The init of Sub-LN.

    Xavier uniform with gain sqrt(log 2L) for value, output, up and down; gain 1 for the others

Wang et al. 2022 (arXiv 2210.06423); L = number of layers of a decoder alone or an encoder alone,
log the natural logarithm. Tables are drawn as by xavier. The gate of a gated MLP, which the paper
does not have, keeps the gain 1. For the placement subln.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from leadline.parts.inits.init import INITS, xavier
from leadline.parts.inits.xavier import Xavier
from leadline.parts.place import Place

_LOUDER = frozenset({"value", "output", "up", "down"})


@INITS.register("subln")
class SubLNInit(Xavier):
    """Xavier uniform, louder by sqrt(log 2L) on value, output, up and down weights."""

    def __init__(self) -> None:
        super().__init__()

    def fill(self, role: str, weight: Tensor, place: Place, generator: torch.Generator) -> None:
        if role in _LOUDER:
            xavier(weight, math.sqrt(math.log(2 * place.depth)), generator)
        else:
            super().fill(role, weight, place, generator)
