"""CompleteP: every update is divided by the depth.

    x' = x + (L / L_0)^(-1) u

Dey et al. 2025, arXiv 2505.01618. L = number of layers; L_0 = `reference`, the depth at which the
learning rate was tuned. It is the end alpha = 1 of the family x + m^(-alpha) u with m = L / L_0,
of which alpha = 1/2 is depth-muP: here every layer keeps learning more than its own linearisation
at any depth. The paper's rules for learning rates, weight decay and the eps of Adam belong to the
optimiser, not here. It costs nothing.
"""

from __future__ import annotations

from leadline.parts.connections._connection import CONNECTIONS, Scalar
from leadline.parts.options import number
from leadline.parts.place import Place


@CONNECTIONS.register("completep")
class CompleteP(Scalar):
    """x + u / L: hyper-parameters carry over between depths, all layers learn features."""

    formula = "x + (L / L_0)^(-1) u"

    def __init__(self, place: Place, *, reference: float = 1) -> None:
        super().__init__(place)
        base = number(
            "completep", "reference", reference, wanted="a number above 0", fits=lambda v: v > 0.0
        )
        self.gain = base / place.depth
