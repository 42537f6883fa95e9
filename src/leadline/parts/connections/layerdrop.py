"""LayerDrop: whole layers are left out in training.

    training:    x' = x + b_l u,             b_l = 0 with probability p_l, otherwise 1
    evaluation:  x' = x + u

Fan et al. 2019, arXiv 1909.11556. One b_l per layer and batch: both writes of a layer are heard
or neither is, and nothing is rescaled, so that layers can be taken out after training. p_l = rate
for every layer, as in the authors' code (schedule constant), or rate l / L (linear, l the layer
from 1 of L). rate 0.1. The draw travels from the first write of a layer to its last in the state,
which is the pair (stream, b_l) in between and the stream alone between layers and in evaluation.
A norm after the addition (placement post) is not left out with its layer: it norms a stream that
the layer before has normed already. No parameters; a dropped layer is not computed in training,
forward or backward, and its weights get no gradient, so that a step costs the share 1 - p_l of it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from leadline.parts.connections._connection import CONNECTIONS, Scalar, State
from leadline.parts.connections._dropping import rate_of
from leadline.parts.place import Place


@CONNECTIONS.register("layerdrop")
class LayerDrop(Scalar):
    """x + u with whole layers dropped at random in training."""

    formula = "x + b u in training (one b for the layer), x + u in evaluation"
    drops = True

    def __init__(self, place: Place, *, rate: float = 0.1, schedule: str = "constant") -> None:
        super().__init__(place)
        self.rate = rate_of("layerdrop", place, rate=rate, schedule=schedule)

    def write(self, state: State, update: Tensor) -> State:
        if not self.training:
            return state + update
        stream, b = self._draw(state)
        stream = torch.addcmul(stream, b, update)
        return stream if self.place.ends_layer else (stream, b)

    def write_kept(self, state: State, update: Callable[[Tensor | None], Tensor]) -> State:
        stream, b = self._draw(state)
        if b:
            stream = stream + update(None)
        return stream if self.place.ends_layer else (stream, b)

    def _draw(self, state: State) -> tuple[Tensor, Tensor]:
        """The stream and b, which the first write of a layer draws."""
        if isinstance(state, tuple):
            return state
        return state, state.new_empty(()).bernoulli_(1.0 - self.rate)
