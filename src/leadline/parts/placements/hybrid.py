"""HybridNorm: norms on queries, keys and values, then post-norm around the MLP's input.

    h  = N(x + A(x)),        A with N(q), N(k), N(v), each over one head
    x' = h + M(h)

and one more norm after the last layer. Zhuo et al. 2025 (arXiv 2503.04598), who write h after the
norm as N(y) twice: x' = N(y) + M(N(y)) with y = x + A(x). Their variant HybridNorm*, whose first
layer is built otherwise, is not offered. Queries and keys are normed before rotary positions turn
them, which is not confirmed against the paper. It costs one norm of the stream and three of heads
per layer.
"""

from __future__ import annotations

from torch import nn

from leadline.parts.place import Place
from leadline.parts.placements._placement import PLACEMENTS, Placement


@PLACEMENTS.register("hybrid")
class Hybrid(Placement):
    """Norms on queries, keys and values, and on the stream after attention (HybridNorm)."""

    formula = "N(x + A(x)) with normed q, k, v, then x + M(x)"
    needs = ("attention", "mlp")

    def settle(self, place: Place) -> nn.Module | None:
        return place.norm(place.width) if place.branch == "attention" else None

    def inside(self, place: Place, point: str, width: int) -> nn.Module | None:
        return place.norm(width) if point in ("query", "key", "value") else None
