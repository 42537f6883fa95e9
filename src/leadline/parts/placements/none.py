"""No norms in the layers.

    x' = x + F(x),        one norm after the last layer unless closing=false

For connections that keep the stream in bounds by themselves: ReZero (Bachlechner et al. 2020,
arXiv 2003.04887), or a weight of 1/sqrt(2 L) on every update. The closing norm stays by default:
the logits then start at the same size whatever the depth; `closing=false` leaves no norm at all.
It costs nothing. With the plain connection the stream grows exponentially with depth.
"""

from __future__ import annotations

from leadline.parts.options import flag
from leadline.parts.placements._placement import PLACEMENTS, Placement


@PLACEMENTS.register("none")
class NoNorms(Placement):
    """No norm in any layer; one after the last unless closing=false."""

    formula = "x + F(x)"

    def __init__(self, *, closing: bool = True) -> None:
        self.closing = flag("none", "closing", closing)
