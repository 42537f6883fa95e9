"""Mix-LN: post-norm in the first layers, pre-norm in the others.

    x' = N(x + F(x))     layers 1 to floor(share L)
    x' = x + F(N(x))     the others, and one more norm after the last layer

Li, Yin and Liu 2024 (arXiv 2412.13795); share is their alpha, 0.25, which makes 3 of 12 and 6 of
24 layers post-norm. In a stack too shallow for one such layer all are pre-norm. It costs one norm
per write.
"""

from __future__ import annotations

import math

from torch import nn

from leadline.parts.options import number
from leadline.parts.place import Place
from leadline.parts.placements._placement import PLACEMENTS, Placement


@PLACEMENTS.register("mix")
class Mix(Placement):
    """Post-norm in the first quarter of the layers, pre-norm in the rest (Mix-LN)."""

    formula = "N(x + F(x)) in the first layers, then x + F(N(x))"
    varies = True

    def __init__(self, *, share: float = 0.25) -> None:
        self.share = number(
            "mix", "share", share, wanted="a number from 0 to 1", fits=lambda x: 0.0 <= x <= 1.0
        )

    def enter(self, place: Place) -> nn.Module | None:
        return None if self._early(place) else place.norm(place.width)

    def settle(self, place: Place) -> nn.Module | None:
        return place.norm(place.width) if self._early(place) else None

    def _early(self, place: Place) -> bool:
        # Rounded first: 0.29 x 100 is a little less than 29 in floating point.
        return place.layer <= math.floor(round(self.share * place.depth, 9))
