"""Residual dropout that is rescaled in evaluation, not in training.

    training:    x' = x + m u,               m = 0 with probability p, otherwise 1
    evaluation:  x' = x + (1 - p) u

The original form (Srivastava et al. 2014): the expectation of training is the write of
evaluation, as with `dropout`, but the update is smaller by 1 - p in both. Through the layers that
is another model: the branches must grow by 1 / (1 - p) to be heard as loudly. p = 0.1. No
parameters; one random number per feature.
"""

from __future__ import annotations

import torch
from torch import Tensor

from leadline.parts.connections._connection import CONNECTIONS, Scalar
from leadline.parts.connections._dropping import checked_rate
from leadline.parts.place import Place


@CONNECTIONS.register("rescaled_dropout")
class RescaledDropout(Scalar):
    """x + dropout(u); the update is scaled down in evaluation."""

    formula = "x + m u in training, x + (1 - p) u in evaluation"

    def __init__(self, place: Place, *, rate: float = 0.1) -> None:
        super().__init__(place)
        self.gain = 1.0 - checked_rate("rescaled_dropout", rate)

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        if not self.training:
            return super().write(state, update)
        return torch.addcmul(state, torch.empty_like(update).bernoulli_(self.gain), update)
