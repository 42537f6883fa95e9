"""How far tokens still differ: residual, relative residual and mean pairwise cosine.

res(X) = X - 1 m', m the mean token (Dong, Cordonnier, Loukas 2021, arXiv 2103.03404). The
absolute residual of a growing stream can stay large while the relative one vanishes; the relative
one is what a norm passes on.
"""

from __future__ import annotations

from collections.abc import Iterator

from leadline.instruments.cost.work import Size, Workload, moving, product
from leadline.instruments.passes.probe import PROBES, At, Each, Result
from leadline.instruments.passes.token_quantities import COSINE, RELATIVE, RESIDUAL
from leadline.numerics.tokens import Tokens


@PROBES.register("tokens")
class TokensProbe:
    """Residual, relative residual and mean cosine of the tokens at block boundaries."""

    sees = ("stream",)
    quantities = (RESIDUAL, RELATIVE, COSINE)

    def cost(self, size: Size) -> Workload:
        """Centring goes over the stream about eight times; the cosine once, in a product of two rows."""
        cosine = product(2, size.tokens, size.width, count=size.examples, times=size.sites)
        return moving(size.numbers, times=8 * size.sites) + cosine

    def stream(self, at: At, x: Tokens, start: Tokens) -> Iterator[Result]:
        if at.site.sublayer is not None or x.length < 2:
            return
        yield Each(RESIDUAL, x.residual)
        yield Each(RELATIVE, x.relative_residual)
        yield Each(COSINE, x.cosine)
