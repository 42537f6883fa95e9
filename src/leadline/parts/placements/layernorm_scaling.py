"""LayerNorm scaling: pre-norm whose norm shrinks with the layer.

    x' = x + F(N(x) / sqrt(l)),        l = the layer from 1, the same for attention and MLP

Sun et al. 2025 (arXiv 2502.05795). The norm after the last layer is not scaled. At initialisation
the stream grows more slowly than with pre-norm, so late layers still change it. The authors
advise against a second scale by depth: choose an init without one (xavier, not gpt2). It costs
one norm and one multiplication per write.
"""

from __future__ import annotations

from torch import Tensor, nn

from leadline.parts.place import Place
from leadline.parts.placements._placement import PLACEMENTS, Placement


class ScaledNorm(nn.Module):
    """A norm whose output is multiplied by a number."""

    def __init__(self, norm: nn.Module, factor: float) -> None:
        super().__init__()
        self.norm = norm
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x) * self.factor

    def extra_repr(self) -> str:
        return f"factor={self.factor:.6g}"


@PLACEMENTS.register("layernorm_scaling")
class LayerNormScaling(Placement):
    """A norm before each branch, divided by the square root of the layer's number."""

    formula = "x + F(N(x) / sqrt(l))"
    varies = True

    def enter(self, place: Place) -> nn.Module | None:
        norm = place.norm(place.width)
        return None if norm is None else ScaledNorm(norm, place.layer**-0.5)
