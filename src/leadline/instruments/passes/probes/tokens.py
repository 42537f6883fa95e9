"""How far tokens still differ: residual, relative residual and mean pairwise cosine.

res(X) = X - 1 m', m the mean token (Dong, Cordonnier, Loukas 2021, arXiv 2103.03404). The
absolute residual of a growing stream can stay large while the relative one vanishes; the relative
one is what a norm passes on.
"""

from __future__ import annotations

from collections.abc import Iterator

from leadline.instruments.passes.probe import PROBES, At, Each, Result
from leadline.instruments.passes.token_quantities import COSINE, RELATIVE, RESIDUAL
from leadline.numerics.tokens import Tokens


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
