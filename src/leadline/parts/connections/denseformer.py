"""DenseFormer: after each layer, a weighted average over all layers so far.

    within a layer     x' = x + u
    after layer i      x' = sum_j a_ij X_j,        j = i, i - k, i - 2k, ... >= 0

X_0 is the embedding and X_i what layer i returned, before it was averaged. Pagliardini et al.
2024, arXiv 2402.02622: k is their dilation; the period p averages only after layers p, 2p, ...
(both 1 by default), and the released code stores the layers between too. At first a_ii = 1 and
all others are 0, so the model starts as the plain one. A norm after the addition (placement post)
stands on the average, and X_i is stored before it. For deep stacks whose late layers should see
early ones. It costs floor(i / k) + 1 numbers and as many additions after layer i, and the memory
of every layer's stream.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leadline.parts.connections._connection import CONNECTIONS, Connection
from leadline.parts.options import whole_number
from leadline.parts.place import Place

State = tuple[Tensor, ...]


@CONNECTIONS.register("denseformer")
class DenseFormer(Connection):
    """x + u, and after each layer a learned average over the layers so far."""

    formula = "x + u; after layer i: sum_j a_ij X_j"
    keeps_identity = False
    starts_as = "plain"

    def __init__(self, place: Place, *, dilation: int = 1, period: int = 1) -> None:
        super().__init__(place)
        self.dilation = whole_number("denseformer", "dilation", dilation)
        period = whole_number("denseformer", "period", period)
        self.alpha = None
        if place.ends_layer and place.layer % period == 0:
            start = torch.zeros(place.layer // self.dilation + 1)
            start[-1] = 1.0
            self.alpha = nn.Parameter(start)

    def open(self, stream: Tensor) -> State:
        return stream, stream

    def write(self, state: State, update: Tensor) -> State:
        kept, written = self.split(state, update)
        after = kept + written
        if not self.place.ends_layer:
            return after, *state[1:]
        layer_output = after if self.alpha is None else state[0] + update
        return after, *state[1:], layer_output

    def split(self, state: State, update: Tensor) -> tuple[Tensor, Tensor]:
        x, *stored = state
        if self.alpha is None:
            return x, update
        newest_share, *older_shares = self.alpha.flip(0).unbind()
        kept = newest_share * x
        # From the newest back: where a block was left out, the oldest numbers are not used.
        for share, older in zip(
            older_shares, stored[-self.dilation :: -self.dilation], strict=False
        ):
            kept = kept + share * older
        return kept, newest_share * update
