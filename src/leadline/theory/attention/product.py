"""|A_L ... A_1|_2 <= sqrt(n): attention alone cannot explode, however deep."""

from __future__ import annotations

import math

from leadline.theory._condition import Condition
from leadline.theory.attention._assumptions import rows_at_most_one, square
from leadline.theory.attention._bound import BOUNDS, AttentionFacts, Bound


@BOUNDS.register("product")
class Product(Bound):
    """|A_L ... A_1|_2 <= sqrt(n), for every number of layers L.

    Assumptions: square matrices over the same n tokens, rows that sum to at most one. Proof: a
    product of such matrices is one again, and so is a mean over heads; then `sqrt-queries`. So the
    product of the norms, which grows with L, says nothing: only W_V and W_O can explode.
    """

    title = "square root of n for a product of any depth"
    statement = "|A_L ... A_1|₂ <= √n"
    source = "products of row-stochastic matrices are row-stochastic"
    quantity = "attention.product_norm"

    def conditions(self, facts: AttentionFacts) -> list[Condition]:
        return [square(facts), rows_at_most_one(facts)]

    def value(self, facts: AttentionFacts) -> float:
        return math.sqrt(facts.queries)
