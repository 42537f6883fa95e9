"""Running mean: after every write all that was ever added has the same weight.

    x' = sqrt((k - 1) / k) x + sqrt(1 / k) u

k counts what is in the stream after the write: the embedding is the first, so the first write has
k = 2 and the k of write i is i + 1. After N writes x = (x_0 + u_1 + ... + u_N) / sqrt(N + 1): the
mean of all terms times the square root of their number, whose variance is 1 if theirs is. Used by
the Beam models of Hugging Face transformers, with a norm on both sides of the branch. It costs
one multiplication per write.
"""

from __future__ import annotations

import math

from leadline.parts.connections._connection import CONNECTIONS, Scalar
from leadline.parts.place import Place


@CONNECTIONS.register("running_mean")
class RunningMean(Scalar):
    """sqrt((k - 1) / k) x + sqrt(1 / k) u: every term of the stream weighs the same."""

    formula = "sqrt((k - 1) / k) x + sqrt(1 / k) u, k = write + 1"
    keeps_identity = False
    keeps_variance = True
    varies = True

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        k = place.write + 1
        self.keep = math.sqrt((k - 1) / k)
        self.gain = math.sqrt(1 / k)
