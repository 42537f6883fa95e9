"""Post-norm: the stream itself is normed after every addition.

    x' = N(x + F(x))

Vaswani et al. 2017 (arXiv 1706.03762), GPT-1, BERT. No constants, no final norm: the last
addition has its own.
"""

from __future__ import annotations

from torch import nn

from leadline.parts.place import Place
from leadline.parts.placements._placement import PLACEMENTS, Placement


@PLACEMENTS.register("post")
class Post(Placement):
    """A norm on the stream after each addition."""

    formula = "N(x + F(x))"
    settles = True
    closing = False

    def settle(self, place: Place) -> nn.Module | None:
        return place.norm(place.width)
