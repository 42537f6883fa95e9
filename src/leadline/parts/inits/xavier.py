"""Xavier's init.

    uniform in ± gain sqrt(6 / (fan in + fan out)); embeddings and positions normal of std 1

Glorot and Bengio 2010. Query, key and value count as three matrices. Tables are looked up, not
multiplied, so their rows get unit variance; an embedding that is also the head gets std
1 / sqrt(width), or the logits would start at the size of sqrt(width).
"""

from __future__ import annotations

import torch
from torch import Tensor

from leadline.parts.inits.init import INITS, TABLES, Init, normal, xavier
from leadline.parts.options import number
from leadline.parts.place import Place


@INITS.register("xavier")
class Xavier(Init):
    """Xavier uniform."""

    def __init__(self, *, gain: float = 1.0) -> None:
        self.gain = number(
            "xavier", "gain", gain, wanted="a number from 0 on", fits=lambda v: v >= 0.0
        )

    def fill(self, role: str, weight: Tensor, place: Place, generator: torch.Generator) -> None:
        if role in TABLES:
            normal(weight, place.width**-0.5 if role == "tied" else 1.0, generator)
        else:
            xavier(weight, self.gain, generator)
