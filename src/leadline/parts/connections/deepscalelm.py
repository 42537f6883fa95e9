"""DeepScaleLM: stream and update share unit variance.

    x' = lambda x + beta u,     lambda^2 + beta^2 = 1,     beta^2 = k / N

Kedia et al. 2024, arXiv 2403.09635. k = 2 and N = number of layers: so it stands in a public
re-implementation; not confirmed against the paper. Where k / N would be more than 1/2 (fewer than
2 k layers) beta^2 is 1/2, so that a shallow stack keeps its stream: that limit is ours. The paper
goes with an init that gives every branch unit variance, which is not part of this. With an update
of unit variance that does not correlate with the stream, the variance stays 1 at any depth. It
costs one multiplication per write.
"""

from __future__ import annotations

import math

from leadline.parts.connections._connection import CONNECTIONS, Scalar
from leadline.parts.options import number
from leadline.parts.place import Place

LARGEST = 0.5


@CONNECTIONS.register("deepscalelm")
class DeepScaleLM(Scalar):
    """lambda x + beta u with lambda^2 + beta^2 = 1 and beta^2 = k / N."""

    formula = "lambda x + beta u, lambda^2 + beta^2 = 1, beta^2 = k / N"
    keeps_identity = False
    keeps_variance = True

    def __init__(self, place: Place, *, k: float = 2.0) -> None:
        super().__init__(place)
        k = number("deepscalelm", "k", k, wanted="a number above 0", fits=lambda v: v > 0.0)
        share = min(k / place.depth, LARGEST)
        self.keep = math.sqrt(1.0 - share)
        self.gain = math.sqrt(share)
