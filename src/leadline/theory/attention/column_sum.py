"""|A|_2 <= sqrt(c_max): the largest column sum, which is measured, bounds the norm."""

from __future__ import annotations

import math

from leadline.theory._condition import Condition, assume
from leadline.theory.attention._assumptions import rows_at_most_one
from leadline.theory.attention._bound import BOUNDS, AttentionFacts, Bound


@BOUNDS.register("column-sum")
class ColumnSum(Bound):
    """|A|_2 <= sqrt(c_max), c_max the largest column sum.

    Assumptions: weights are not negative and rows sum to at most one, as every softmax row does,
    with a sink or without. Proof: by the convexity of the square
    |Ax|^2 = sum_i (sum_j A_ij x_j)^2 <= sum_ij A_ij x_j^2 = sum_j c_j x_j^2 <= c_max |x|^2. It is
    Schur's test with the vector of ones.
    """

    title = "square root of the largest column sum"
    statement = "|A|₂ <= √c_max"
    source = "Schur 1911; Deep Dive into Transformer Architecture, section 2.1, equation 6"

    def conditions(self, facts: AttentionFacts) -> list[Condition]:
        measured = facts.column_sum is not None
        return [
            assume("the column sums were measured", measured, "they were not measured"),
            rows_at_most_one(facts),
        ]

    def value(self, facts: AttentionFacts) -> float | None:
        if facts.column_sum is None or facts.column_sum < 0:
            return None
        return math.sqrt(facts.column_sum)
