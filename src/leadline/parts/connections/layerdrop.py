"""LayerDrop: whole layers are left out in training.

    training:    x' = x + b_l u,             b_l = 0 with probability p_l, otherwise 1
    evaluation:  x' = x + u

Fan et al. 2019, arXiv 1909.11556. One b_l per layer and batch: both writes of a layer are heard
or neither is, and nothing is rescaled, so that layers can be taken out after training. p_l = rate
for every layer, as in the authors' code (schedule constant), or rate l / L (linear, l the layer
from 1 of L). rate 0.1. The draw travels from the first write of a layer to its last in the state,
which is the pair (stream, b_l) in between and the stream alone between layers and in evaluation.
A norm after the addition (placement post) is not left out with its layer: it norms a stream that
the layer before has normed already. No parameters; the branch is computed even where it is
dropped.
"""

from __future__ import annotations

import torch
from torch import Tensor

from leadline.parts.connections._connection import CONNECTIONS, Scalar, State
from leadline.parts.connections._dropping import rate_of
from leadline.parts.place import Place


@CONNECTIONS.register("layerdrop")
class LayerDrop(Scalar):
    """x + u with whole layers dropped at random in training."""

    formula = "x + b u in training (one b for the layer), x + u in evaluation"

    def __init__(self, place: Place, *, rate: float = 0.1, schedule: str = "constant") -> None:
        super().__init__(place)
        self.rate = rate_of("layerdrop", place, rate=rate, schedule=schedule)

    def write(self, state: State, update: Tensor) -> State:
        if not self.training:
            return state + update
        if isinstance(state, tuple):
            stream, drawn = state
        else:
            stream, drawn = state, state.new_empty(()).bernoulli_(1.0 - self.rate)
        stream = torch.addcmul(stream, drawn, update)
        return stream if self.place.ends_layer else (stream, drawn)
