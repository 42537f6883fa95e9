"""Pre-norm: the branch reads a normed copy, the stream itself is never normed.

    x' = x + F(N(x)),        one more norm after the last layer

Baevski and Auli 2018 (arXiv 1809.10853), GPT-2; analysed by Xiong et al. 2020 (arXiv 2002.04745).
No constants. At initialisation the mean square of the stream grows linearly with depth.
"""

from __future__ import annotations

from torch import nn

from leadline.parts.place import Place
from leadline.parts.placements._placement import PLACEMENTS, Placement


@PLACEMENTS.register("pre")
class Pre(Placement):
    """A norm before each branch, and one after the last layer."""

    formula = "x + F(N(x))"

    def enter(self, place: Place) -> nn.Module | None:
        return place.norm(place.width)
