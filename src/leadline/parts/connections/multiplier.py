"""A fixed multiplier on every update.

    x' = x + c u

Two ways to say c, of which one is given: `value`, as in Granite (`residual_multiplier`; 0.22 in
the released models, and here where nothing is given), or `scale_depth`, as in MiniCPM:
c = scale_depth / sqrt(L) with L = number of layers (1.4 in the released models): the 2 L writes
together add 2 scale_depth^2 times the mean square of one update, at any depth. It costs nothing.
"""

from __future__ import annotations

import math

from leadline.errors import RecipeError
from leadline.parts.connections._connection import CONNECTIONS, Scalar
from leadline.parts.options import number
from leadline.parts.place import Place

GRANITE = 0.22


@CONNECTIONS.register("multiplier")
class Multiplier(Scalar):
    """x + c u with a fixed number c, the same in every layer."""

    formula = "x + c u"

    def __init__(
        self, place: Place, *, value: float | None = None, scale_depth: float | None = None
    ) -> None:
        super().__init__(place)
        if value is not None and scale_depth is not None:
            raise RecipeError(
                f"The connection multiplier was given value={value!r} and "
                f"scale_depth={scale_depth!r}; give one of them: value is the multiplier itself, "
                "scale_depth is divided by sqrt(layers)."
            )
        if scale_depth is not None:
            self.gain = number("multiplier", "scale_depth", scale_depth) / math.sqrt(place.depth)
        else:
            self.gain = number("multiplier", "value", GRANITE if value is None else value)
