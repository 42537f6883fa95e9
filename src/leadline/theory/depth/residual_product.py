"""The product of the blocks' Jacobians between what the norms of the branches allow."""

from __future__ import annotations

import math

from leadline.theory._condition import Condition
from leadline.theory.depth._facts import DepthFacts
from leadline.theory.depth._law import LAWS, Band, Law
from leadline.theory.residual_products import product_bands


@LAWS.register("residual-product")
class ResidualProduct(Law):
    """prod (1 - f_k) <= sigma_1(J_l ... J_1) <= prod (1 + f_k), f_k = sigma_1(J_k - I).

    Assumptions: none. It holds for every differentiable block at every point; the left end is 0
    where some f_k >= 1, and then says nothing. f is measured: the largest over the examples.

    Proof. In `residual_products`. The left end is a lower bound even of the smallest singular
    value, so it is far below the largest one unless all blocks act alike.

    How far the right end lies above the measurement tells how loose an argument is that multiplies
    the norms of single layers: the strongest direction of one block is not that of the next.
    """

    title = "product of block Jacobians"
    statement = "Π (1 - |J_k - I|) <= |J_l ... J_1| <= Π (1 + |J_k - I|)"
    source = "triangle inequality, layer by layer"
    quantity = "jacobian.through"
    strict = True
    log10 = True

    def conditions(self, facts: DepthFacts) -> list[Condition]:
        is_known = len(facts.branch_norms) == facts.depth
        is_known = is_known and not any(math.isnan(norm) for norm in facts.branch_norms)
        return [Condition("|J_k - I| of every block was measured", is_known)]

    def predicted(self, facts: DepthFacts) -> tuple[Band, ...] | None:
        if len(facts.branch_norms) != facts.depth:
            return None
        scale = math.log(10.0)
        return tuple(
            (band.log_lower / scale, band.log_upper / scale)
            for band in product_bands(facts.branch_norms)
        )
