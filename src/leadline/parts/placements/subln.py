"""Sub-LN: pre-norm with one more norm inside each branch.

    x' = x + W_o N(heads(N(x)))            attention: before the output projection
    x' = x + W_2 N(f(W_1 N(x)))            MLP: before the last projection

and one more norm after the last layer. Wang et al. 2022 (arXiv 2210.06423, Foundation
Transformers or Magneto). The design has an init of its own, Xavier with the gain sqrt(log 2L) on
value, output, up and down weights: a recipe must choose it, init="subln". It costs two norms per
write, the one in the MLP as wide as its hidden layer.
"""

from __future__ import annotations

from torch import nn

from leadline.parts.place import Place
from leadline.parts.placements._placement import PLACEMENTS, Placement


@PLACEMENTS.register("subln")
class SubLN(Placement):
    """A norm before each branch and one before its last projection."""

    formula = "x + W N(F'(N(x))), F = W F'"

    def enter(self, place: Place) -> nn.Module | None:
        return place.norm(place.width)

    def inside(self, place: Place, point: str, width: int) -> nn.Module | None:
        return place.norm(width) if point in ("mixed", "hidden") else None
