"""Depth-muP: every update is divided by the square root of the depth.

    x' = x + (L / L_0)^(-1/2) u

Yang et al. 2023, arXiv 2310.02244. L = number of layers; L_0 = `reference`, the depth at which
the learning rate was tuned (1: the paper's L^(-1/2)). The exponent is the one with which features
of different layers stay as different as they can; the paper shows it for blocks of one weight
matrix, and for deeper ones, such as a Transformer's, finds limits in every choice. Its rule for
the learning rate belongs to the optimiser, not here. It costs nothing.
"""

from __future__ import annotations

from leadline.parts.connections._connection import CONNECTIONS, Scalar
from leadline.parts.options import number
from leadline.parts.place import Place


@CONNECTIONS.register("depth_mup")
class DepthMuP(Scalar):
    """x + u / sqrt(L): hyper-parameters carry over between depths."""

    formula = "x + (L / L_0)^(-1/2) u"

    def __init__(self, place: Place, *, reference: float = 1) -> None:
        super().__init__(place)
        base = number(
            "depth_mup", "reference", reference, wanted="a number above 0", fits=lambda v: v > 0.0
        )
        self.gain = (place.depth / base) ** -0.5
