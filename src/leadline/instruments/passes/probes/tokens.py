"""How far tokens still differ: residual, relative residual and mean pairwise cosine.

res(X) = X - 1 m', m the mean token (Dong, Cordonnier, Loukas 2021, arXiv 2103.03404). The
absolute residual of a growing stream can stay large while the relative one vanishes; the relative
one is what a norm passes on.
"""

from __future__ import annotations

from collections.abc import Iterator

from leadline.instruments.passes.probe import PROBES, At, Each, Result
from leadline.numerics.tokens import Tokens
from leadline.record import Quantity

_SOURCE = "Dong, Cordonnier, Loukas 2021, arXiv 2103.03404"

RESIDUAL = Quantity(
    name="tokens.residual",
    title="Token residual",
    symbol="‖X − 1m′‖_F",
    formula="Frobenius norm of the tokens of one example minus their mean",
    scale="log",
    high="Tokens differ; in a growing stream that alone says little: see the relative residual.",
    low="Tokens have become equal: rank collapse.",
    source=_SOURCE,
    meaning="How far the tokens of a text are from their mean.",
)
RELATIVE = Quantity(
    name="tokens.relative_residual",
    title="Relative token residual",
    symbol="‖X − 1m′‖_F / ‖X‖_F",
    formula="token residual over the norm of all tokens",
    scale="log",
    high="Tokens keep their own content (1: they share no common part).",
    low="Tokens are nearly one vector: rank collapse, attention can no longer tell them apart.",
    source=_SOURCE,
    meaning="How much of the stream is what tells tokens apart.",
)
COSINE = Quantity(
    name="tokens.cosine",
    title="Token cosine",
    symbol="mean cos(x_i, x_j)",
    formula="mean cosine over all pairs of different tokens of one example",
    high="Towards 1: all tokens point the same way (rank collapse or one massive direction).",
    low="Near 0: tokens are spread in all directions.",
    source="Noci et al. 2022, arXiv 2206.03126",
    meaning="How alike the tokens of a text have become.",
    leads=True,
    better="low",
)


@PROBES.register("tokens")
class TokensProbe:
    """Residual, relative residual and mean cosine of the tokens at block boundaries."""

    sees = ("stream",)
    quantities = (RESIDUAL, RELATIVE, COSINE)

    def stream(self, at: At, x: Tokens, start: Tokens) -> Iterator[Result]:
        if at.site.sublayer is not None or x.length < 2:
            return
        yield Each(RESIDUAL, x.residual)
        yield Each(RELATIVE, x.relative_residual)
        yield Each(COSINE, x.cosine)
