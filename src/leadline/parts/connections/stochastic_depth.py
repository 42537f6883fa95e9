"""Stochastic depth: whole updates are left out in training, example by example.

    training:    x' = x + b u / (1 - p_l),   b = 0 with probability p_l, otherwise 1
    evaluation:  x' = x + u

Huang et al. 2016, arXiv 1603.09382. p_l = rate l / L (schedule linear, the paper's line: l is the
layer from 1, L the number of layers, the last layer has the full rate) or rate everywhere
(constant). rate 0.1. Every example and every write draws its own b; the two writes of a layer
have the same rate. The paper does not divide in training and multiplies u by 1 - p_l in
evaluation; dividing by 1 - p_l instead gives the same expectation and leaves evaluation as x + u,
as is usual now. No parameters; in training the branch is computed for the examples that are kept,
and not at all where none is.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from leadline.parts.connections._connection import CONNECTIONS, Scalar
from leadline.parts.connections._dropping import rate_of
from leadline.parts.place import Place


@CONNECTIONS.register("stochastic_depth")
class StochasticDepth(Scalar):
    """x + u with updates dropped at random in training, more often in later layers."""

    formula = "x + b u / (1 - p_l) in training, x + u in evaluation"
    varies = True
    drops = True

    def __init__(self, place: Place, *, rate: float = 0.1, schedule: str = "linear") -> None:
        super().__init__(place)
        self.rate = rate_of("stochastic_depth", place, rate=rate, schedule=schedule)
        self.varies = schedule == "linear" and rate > 0.0

    def write(self, state: Tensor, update: Tensor) -> Tensor:
        if not self.training:
            return state + update
        b = self._draw(state).view(-1, *(1,) * (state.ndim - 1))
        return torch.addcmul(state, b / (1.0 - self.rate), update)

    def write_kept(self, state: Tensor, update: Callable[[Tensor | None], Tensor]) -> Tensor:
        index = self._draw(state).nonzero().flatten()
        if not len(index):
            return state
        louder = 1.0 / (1.0 - self.rate)
        if len(index) == len(state):
            return torch.add(state, update(None), alpha=louder)
        # Under autocast the update has fewer digits than the stream.
        return state.index_add(0, index, update(index).to(state.dtype), alpha=louder)

    def _draw(self, state: Tensor) -> Tensor:
        """b of every example, in the stream's number type."""
        return state.new_empty(len(state)).bernoulli_(1.0 - self.rate)
