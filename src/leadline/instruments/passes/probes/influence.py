"""Block influence: how much one block turns the stream (Men et al. 2024, ShortGPT, 2403.03853).

BI_l = 1 - mean over tokens of cos(x_(l-1), x_l). Blocks of low influence are candidates for
removal; ablation tells whether they may go.
"""

from __future__ import annotations

from collections.abc import Iterator

from leadline.instruments.cost.work import Size, Workload, moving
from leadline.instruments.passes.probe import PROBES, At, PerToken, Result
from leadline.numerics.tokens import Tokens, dot
from leadline.record import Quantity

INFLUENCE = Quantity(
    name="block.influence",
    title="Block influence",
    symbol="1 − cos(x_{l−1}, x_l)",
    formula="1 minus the cosine of the stream before and after the block, token by token",
    lives_on="layer",
    scale="log",
    high="The block turns the stream: it matters.",
    low="The block hardly turns the stream: a candidate for removal, to be checked by ablation.",
    source="Men et al. 2024, arXiv 2403.03853",
    meaning="How far a block turns the stream.",
    leads=True,
)


@PROBES.register("influence")
class InfluenceProbe:
    """How much every block turns the stream."""

    sees = ("block",)
    quantities = (INFLUENCE,)

    def cost(self, size: Size) -> Workload:
        """A product reads the stream on both sides of every block."""
        return moving(size.numbers, times=2 * size.depth)

    def block(self, at: At, before: Tokens, after: Tokens) -> Iterator[Result]:
        yield PerToken(INFLUENCE, 1 - dot(before, after))
