"""Output norm: the branch reads the stream as it is, what it returns is normed.

    x' = x + N(F(x)),        one more norm after the last layer

OLMo-2 (arXiv 2501.00656). No constants. Every update has the size of the norm's
gain; the branch sees a stream that grows. It costs one norm per write, as pre-norm does.
"""

from __future__ import annotations

from torch import nn

from leadline.parts.place import Place
from leadline.parts.placements._placement import PLACEMENTS, Placement


@PLACEMENTS.register("output")
class Output(Placement):
    """A norm on what each branch returns, and one after the last layer (OLMo-2)."""

    formula = "x + N(F(x))"

    def exit(self, place: Place) -> nn.Module | None:
        return place.norm(place.width)
