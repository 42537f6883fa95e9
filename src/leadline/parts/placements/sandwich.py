"""Sandwich norm: one norm before each branch, another on its output.

    x' = x + N_out(F(N_in(x))),        N(x_0) on the embedding, one more norm after the last layer

Peri-LN (Kim et al. 2025, arXiv 2502.02732) norms the embedding too. CogView (Ding et al. 2021,
arXiv 2105.13290), which named the sandwich, and Gemma 2 do not: `opening=false`. No constants.
Every update leaves N_out with the size of its gain, so at initialisation the mean square of the
stream grows linearly, whatever the branch's weights are. It costs two norms per write.
"""

from __future__ import annotations

from torch import nn

from leadline.parts.options import flag
from leadline.parts.place import Place
from leadline.parts.placements._placement import PLACEMENTS, Placement


@PLACEMENTS.register("sandwich")
class Sandwich(Placement):
    """A norm before each branch and one on its output (Peri-LN)."""

    formula = "x + N(F(N(x)))"

    def __init__(self, *, opening: bool = True) -> None:
        self.opening = flag("sandwich", "opening", opening)

    def enter(self, place: Place) -> nn.Module | None:
        return place.norm(place.width)

    def exit(self, place: Place) -> nn.Module | None:
        return place.norm(place.width)
