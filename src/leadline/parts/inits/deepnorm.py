"""DeepNorm's init.

    Xavier; value, output, up, gate and down weights times beta = (8 L)^(-1/4); query and key 1

Wang et al. 2022, arXiv 2203.00555, for a stack of its own (encoder-only, decoder-only). L counts
layers of two sublayers, so 8 L is four times the number of writes. The paper draws from a normal
distribution, here it is uniform with the same variance. It knows no gated MLP: there both inner
matrices are multiplied, so the update shrinks by beta^3. Tables are drawn as by xavier. It belongs
to the connection deepnorm.
"""

from __future__ import annotations

import torch
from torch import Tensor

from leadline.parts.inits.init import INITS, xavier
from leadline.parts.inits.xavier import Xavier
from leadline.parts.place import Place

QUIETER = frozenset({"value", "output", "up", "gate", "down"})


@INITS.register("deepnorm")
class DeepNormInit(Xavier):
    """Xavier uniform, less by (8 L)^(1/4) for value, output and MLP weights."""

    def __init__(self) -> None:
        super().__init__()

    def fill(self, role: str, weight: Tensor, place: Place, generator: torch.Generator) -> None:
        if role in QUIETER:
            xavier(weight, (4 * place.writes) ** -0.25, generator)
        else:
            super().fill(role, weight, place, generator)
