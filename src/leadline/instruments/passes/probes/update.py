"""What is written to the stream: its size, its share, its direction, and what bfloat16 loses.

u is the update as added, after any output norm or gain; x the stream just before. The share
|u| / |x| tells how much one write can still change; where it falls like 1/l, late layers do
little (Sun et al. 2025, arXiv 2502.05795).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from leadline.instruments.cost.work import Size, Workload, moving
from leadline.instruments.passes.probe import PROBES, At, PerToken, Result
from leadline.numerics.bf16 import write_loss
from leadline.numerics.tokens import Tokens, dot
from leadline.record import Quantity

NORM = Quantity(
    name="update.norm",
    title="Update norm",
    symbol="‖u‖",
    formula="Euclidean norm of what one write adds to a token's stream",
    lives_on="sublayer",
    scale="log",
    high="The branch writes a lot.",
    low="The branch writes little; zero is by design in ReZero and zero-initialised layers.",
    meaning="How much a sublayer writes to the stream.",
)
RATIO = Quantity(
    name="update.ratio",
    title="Update over stream",
    symbol="‖u‖ / ‖x‖",
    formula="update norm over the norm of the stream before the write, token by token",
    lives_on="sublayer",
    scale="log",
    high="One write replaces much of the stream.",
    low="The write drowns in the stream: the layer hardly matters.",
    source="Sun et al. 2025, arXiv 2502.05795",
    meaning="How much a sublayer writes, beside what is there already.",
    leads=True,
)
COSINE = Quantity(
    name="update.cosine",
    title="Update against stream",
    symbol="cos(u, x)",
    formula="cosine of the update with the stream before the write",
    lives_on="sublayer",
    high="The write lengthens the stream along itself.",
    low="Negative: the write erases part of the stream; zero: it adds something new.",
    meaning="Whether a write goes along with the stream or against it.",
)
BF16 = Quantity(
    name="update.bf16_loss",
    title="Update lost in a bfloat16 stream",
    symbol="‖r(r(x)+u) − r(x) − u‖ / ‖u‖",
    formula="share of the update that rounding r() takes when the stream is kept in bfloat16",
    lives_on="sublayer",
    scale="log",
    high="Towards 1: most of the write is rounded away; keep the stream in float32.",
    low="The write arrives.",
    meaning="How much of a write rounding would lose in a bfloat16 stream.",
    better="low",
)


@PROBES.register("update")
class UpdateProbe:
    """Norm, share, direction and bfloat16 loss of every write."""

    sees = ("update",)
    quantities = (NORM, RATIO, COSINE, BF16)

    def cost(self, size: Size) -> Workload:
        """Two norms and a product read it five times; adding in bfloat16 goes over it eight times."""
        return moving(size.numbers, times=13 * size.depth * size.writes)

    def update(self, at: At, u: Tokens, x: Tokens) -> Iterator[Result]:
        yield PerToken(NORM, u.norm)
        yield PerToken(RATIO, torch.where(x.norm > 0, u.norm / x.norm, float("nan")))
        yield PerToken(COSINE, dot(u, x))
        yield PerToken(BF16, write_loss(u, x))
