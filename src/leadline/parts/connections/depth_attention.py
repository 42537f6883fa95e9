"""Attention over depth: what a branch reads is a softmax over everything written before.

    h = sum_i p_i v_i,        p = softmax_i(w . v_i / rms(v_i))

v_0 is the embedding, v_i the update of write i. Kimi Team 2026 (Attention Residuals), arXiv
2603.15031. The query w, one vector per write, starts at 0: at first h is the plain mean. The w of
a write makes the h that follows it, so the last one makes what the model returns; before the first
write h = v_0. The paper's RMSNorm of the keys may have a gain, which w can take over: here it has
none. Its eps is 1e-6, which the paper does not give.

`blocks=N` sums the updates of ceil(writes / N) consecutive writes; attention runs over the
embedding, the finished sums and the running one. The paper finds about 8 enough; N = writes is the
full form, which `blocks=0` (or none) is as well, and N = 1 keeps one sum beside the embedding.

The stream is computed anew from the v_i at every write, so a norm on it would be lost: placements
that norm the stream are refused. For stacks in which late layers drown in the sum of the early
ones. It costs width parameters per write, and over k sources 2 k width products and the memory of
every v_i.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from leadline.errors import RecipeError
from leadline.parts.connections._connection import CONNECTIONS, Connection
from leadline.parts.connections._norm_points import norm_points
from leadline.parts.options import whole_number
from leadline.parts.place import Place
from leadline.parts.placements import Placement

EPS = 1e-6
State = tuple[Tensor, ...]


@CONNECTIONS.register("depth_attention")
class DepthAttention(Connection):
    """A softmax over the embedding and all updates so far (attention residuals)."""

    formula = "sum_i p_i v_i, p = softmax(w . v_i / rms(v_i))"
    keeps_identity = False

    def __init__(self, place: Place, *, blocks: int | None = 0) -> None:
        super().__init__(place)
        blocks = whole_number("depth_attention", "blocks", 0 if blocks is None else blocks, least=0)
        if blocks > place.writes:
            raise RecipeError(
                f"The option blocks of depth_attention is {blocks}, and the stack has "
                f"{place.writes} writes; choose at most as many, or 0 for no blocks."
            )
        size = math.ceil(place.writes / blocks) if blocks else 1
        self.begins = (place.write - 1) % size == 0
        self.query = nn.Parameter(torch.zeros(place.width))

    @classmethod
    def refuses(cls, placement: Placement, sublayers: int) -> str | None:
        if "settle" in norm_points(placement):
            return (
                "its stream is computed anew from all updates at every write, so a norm on the "
                "stream would be lost (choose a placement such as pre or sandwich)"
            )
        return super().refuses(placement, sublayers)

    def open(self, stream: Tensor) -> State:
        return stream, stream

    def write(self, state: State, update: Tensor) -> State:
        kept, written = self.split(state, update)
        return kept + written, *self._values(state, update)

    def split(self, state: State, update: Tensor) -> tuple[Tensor, Tensor]:
        """The running sum is the last value: what it held before belongs to what is kept."""
        *older, last = self._values(state, update)
        *shares, share = self.shares((*older, last))
        kept = shares[0] * older[0]
        for p, value in zip(shares[1:], older[1:], strict=True):
            kept = kept + p * value
        if not self._opens(state):
            kept = kept + share * state[-1]
        return kept, share * update.to(last.dtype)

    def shares(self, values: State) -> State:
        """The softmax over depth: one number per value and token, [example, token, 1] each."""
        wide = torch.promote_types(values[0].dtype, torch.float32)
        query = self.query.to(wide)
        logits = [
            (F.rms_norm(v.to(wide), query.shape, eps=EPS) * query).sum(-1, keepdim=True)
            for v in values
        ]
        shares = torch.softmax(torch.stack(logits), 0).to(values[0].dtype)
        return shares.unbind()

    def _values(self, state: State, update: Tensor) -> State:
        _, *values = state
        update = update.to(values[0].dtype)
        if self._opens(state):
            return *values, update
        return *values[:-1], values[-1] + update

    def _opens(self, state: State) -> bool:
        # Where the blocks that began it were left out, a sum begins after the embedding.
        return self.begins or len(state) == 2
