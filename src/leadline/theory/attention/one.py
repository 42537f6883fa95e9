"""1 <= |A|_2: an attention matrix never shrinks the vector of ones.

For m queries and n keys sqrt(m / n) <= |A|_2. It bounds the largest amplification from below, not
the smallest: the smallest singular value may be 0.
"""

from __future__ import annotations

import math

from leadline.theory._condition import Condition, assume
from leadline.theory.attention._bound import BOUNDS, AttentionFacts, Bound


@BOUNDS.register("one")
class One(Bound):
    """sqrt(m / n) <= |A|_2 for m queries and n keys; 1 for a square A.

    Assumptions: every row sums to one. Proof: A maps the n ones to the m ones, so
    |A|_2 >= |A 1| / |1| = sqrt(m / n). For a square A it is attained exactly by the doubly
    stochastic matrices.
    """

    title = "one"
    statement = "1 <= |A|₂ (m queries, n keys: √(m/n))"
    source = "Deep Dive into Transformer Architecture, section 2.1, equation 8"
    side = "lower"

    def conditions(self, facts: AttentionFacts) -> list[Condition]:
        blind = sum(1 for count in facts.allowed if count == 0)
        return [
            assume("every row sums to one", facts.stochastic, "rows sum to less than one"),
            assume("every query sees a key", not blind, f"{blind} queries see none"),
        ]

    def value(self, facts: AttentionFacts) -> float:
        return math.sqrt(facts.queries / facts.keys)
