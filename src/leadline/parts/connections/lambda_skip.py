"""The lambda-skip connection: the stream is multiplied by a number, and a norm follows.

    x' = N(lambda x + u)

Joseph et al. 2024, arXiv 2410.10609: a lambda above a bound that depends on the weights keeps
tokens from becoming equal. With a norm before the branch too (placement keel) it is the
connection of Keel (Chen and Wei 2026, arXiv 2601.19895), which sets lambda = L. `value` is a
number, "depth" = L or "sqrt_depth" = sqrt(L), where L counts writes (sublayers), twice the
layers; that L counts sublayers is said by summaries of the paper and not confirmed against it.
The norm undoes the size, so what counts is the share 1 / lambda of the update: with lambda = L
all writes together move the stream by about its own size. It needs a norm after each addition
below 1 as well as above: without one the stream would be multiplied by lambda^writes. It costs
one multiplication per write.
"""

from __future__ import annotations

from leadline.parts.connections._connection import CONNECTIONS, Scalar
from leadline.parts.options import number
from leadline.parts.place import Place


@CONNECTIONS.register("lambda_skip")
class LambdaSkip(Scalar):
    """lambda x + u with a fixed lambda, for placements with a norm after the addition."""

    formula = "lambda x + u"
    keeps_identity = False
    amplifies = True

    def __init__(self, place: Place, *, value: float | str = "depth") -> None:
        super().__init__(place)
        if value == "depth":
            self.keep = float(place.writes)
        elif value == "sqrt_depth":
            self.keep = place.writes**0.5
        else:
            self.keep = number(
                "lambda_skip",
                "value",
                value,
                wanted="a number other than 0 (that is the connection none), depth or sqrt_depth",
                fits=lambda v: v != 0.0,
            )
        self.amplifies = abs(self.keep) > 1.0
        self.keeps_identity = self.keep == 1.0
        self.starts_as = "plain" if self.keep == 1.0 else None
