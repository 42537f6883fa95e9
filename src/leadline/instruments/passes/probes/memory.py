"""How much of what entered is still there: cosine of x_l with x_0, token by token."""

from __future__ import annotations

from collections.abc import Iterator

from leadline.instruments.cost.work import Size, Workload, moving
from leadline.instruments.passes.probe import PROBES, At, PerToken, Result
from leadline.numerics.tokens import Tokens, dot
from leadline.record import Quantity

COSINE = Quantity(
    name="memory.cosine",
    title="Memory of the input (cosine)",
    symbol="cos(x_l, x_0)",
    formula="cosine of a token's stream with the same token's stream as it entered",
    high="The stream still points where the embedding put it.",
    low="The embedding's direction is overwritten or drowned (a linear map may still read it).",
    meaning="How much the stream still looks like the embedding.",
    leads=True,
)


@PROBES.register("memory")
class MemoryProbe:
    """Cosine of the stream with the stream that entered the stack."""

    sees = ("stream",)
    quantities = (COSINE,)

    def cost(self, size: Size) -> Workload:
        """A product reads the stream and the one that entered."""
        return moving(size.numbers, times=2 * size.sites)

    def stream(self, at: At, x: Tokens, start: Tokens) -> Iterator[Result]:
        if at.site.sublayer is None and x.x.shape == start.x.shape:
            yield PerToken(COSINE, dot(x, start))
