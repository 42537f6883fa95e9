"""Keel: post-norm with a second norm before the branch.

    x' = N_out(a x + F(N_in(x)))

Chen and Wei 2026 (arXiv 2601.19895). The factor a on the stream belongs to the connection: choose
lambda_skip, or deepnorm; with identity a = 1. The equation is from notes on the paper, one of
which gives a as the number of sublayers; neither is confirmed against the paper itself. No final
norm: the last addition has its own. It costs two norms per write.
"""

from __future__ import annotations

from torch import nn

from leadline.parts.place import Place
from leadline.parts.placements._placement import PLACEMENTS, Placement


@PLACEMENTS.register("keel")
class Keel(Placement):
    """A norm before each branch and one on the stream after each addition."""

    formula = "N(x + F(N(x)))"
    settles = True
    closing = False

    def enter(self, place: Place) -> nn.Module | None:
        return place.norm(place.width)

    def settle(self, place: Place) -> nn.Module | None:
        return place.norm(place.width)
