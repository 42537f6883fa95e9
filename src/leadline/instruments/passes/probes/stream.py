"""Size and centre of the residual stream: |x|, mean and variance over the features of a token.

In a pre-norm model at initialisation the mean square grows linearly with depth (Xiong et al.
2020, arXiv 2002.04745); with every write scaled by 1/sqrt(2 depth) it stays near constant; in a
post-norm model the norm sets it.
"""

from __future__ import annotations

from collections.abc import Iterator

from leadline.instruments.cost.work import Size, Workload, moving
from leadline.instruments.passes.probe import PROBES, At, PerToken, Result
from leadline.numerics.tokens import Tokens
from leadline.record import Quantity

NORM = Quantity(
    name="stream.norm",
    title="Stream norm",
    symbol="‖x_l‖",
    formula="Euclidean norm of a token's stream",
    scale="log",
    high="The stream is large: later updates weigh less in it, and half precision rounds them off.",
    low="The stream is small: every update changes its direction a lot.",
    source="Xiong et al. 2020, arXiv 2002.04745",
    meaning="How large the residual stream is between the blocks.",
    leads=True,
    better="even",
)
MEAN = Quantity(
    name="stream.mean",
    title="Stream mean over features",
    symbol="mean(x_l)",
    formula="mean over the features of a token's stream",
    high="The features share an offset, which LayerNorm removes and RMSNorm does not.",
    low="Near zero: the features are centred.",
    meaning="Where the features of a token are centred.",
)
VARIANCE = Quantity(
    name="stream.variance",
    title="Stream variance over features",
    symbol="Var(x_l)",
    formula="variance over the features of a token's stream",
    scale="log",
    high="The norm that reads the stream divides by more: gradients through the branch shrink.",
    low="The norm that reads the stream divides by little: gradients through the branch grow.",
    source="Xiong et al. 2020, arXiv 2002.04745",
    meaning="How far the features of a token are spread, which theory predicts.",
)


@PROBES.register("stream")
class StreamProbe:
    """Norm of the residual stream at every site; mean and variance at block boundaries."""

    sees = ("stream",)
    quantities = (NORM, MEAN, VARIANCE)

    def cost(self, size: Size) -> Workload:
        """Norms read the stream twice at every site; mean and variance four times between blocks."""
        return moving(size.numbers, times=2 * size.all_sites + 4 * size.sites)

    def stream(self, at: At, x: Tokens, start: Tokens) -> Iterator[Result]:
        yield PerToken(NORM, x.norm)
        if at.site.sublayer is None:
            yield PerToken(MEAN, x.mean)
            yield PerToken(VARIANCE, x.variance)
