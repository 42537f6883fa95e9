"""Residual dropout: some features of the update are left out in training.

    training:    x' = x + m u / (1 - p),     m = 0 with probability p, otherwise 1
    evaluation:  x' = x + u

Every feature of every token draws its own m. What is kept is divided by 1 - p, so that the
expectation over m is x + u, the write of evaluation (the inverted form that PyTorch uses).
Vaswani et al. 2017 (arXiv 1706.03762) drop the branch's output so, with p = 0.1. The variance of
the update grows by the factor 1 / (1 - p) in training. No parameters; one random number per
feature.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from leadline.parts.connections._connection import CONNECTIONS, Scalar
from leadline.parts.connections._dropping import checked_rate
from leadline.parts.place import Place


@CONNECTIONS.register("dropout")
class Dropout(Scalar):
    """x + dropout(u); what is kept is scaled up in training."""

    formula = "x + m u / (1 - p) in training, x + u in evaluation"

    def __init__(self, place: Place, *, rate: float = 0.1) -> None:
        super().__init__(place)
        self.rate = checked_rate("dropout", rate)

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        return state + F.dropout(update, self.rate, self.training)
