"""DeepNorm: the stream is multiplied before the addition, and a norm follows.

    x' = N(a x + u),     a = (2 L)^(1/4)

Wang et al. 2022, arXiv 2203.00555, for a stack of its own (encoder-only, decoder-only). L counts
layers of two sublayers each, so 2 L is the number of writes, and a = writes^(1/4). Its init
(`deepnorm`) multiplies the weights of value, output and MLP by (8 L)^(-1/4); without it the bound
on the model's update does not hold. Some public code goes by the same name and is another design:
a on the branch's side, or the exponent 1/2. Here the paper's law is kept. For stacks of hundreds
of layers. It costs one multiplication per write.
"""

from __future__ import annotations

from leadline.parts.connections._connection import CONNECTIONS, Scalar
from leadline.parts.place import Place


@CONNECTIONS.register("deepnorm")
class DeepNorm(Scalar):
    """a x + u with a = (number of writes)^(1/4), for post-norm stacks of great depth."""

    formula = "a x + u, a = writes^(1/4)"
    keeps_identity = False
    amplifies = True
    init = "deepnorm"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.keep = place.writes**0.25
