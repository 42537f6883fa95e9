"""|A|_2 <= sqrt(m) for m queries: no attention can do more than copy one key to every query."""

from __future__ import annotations

import math

from leadline.theory._condition import Condition
from leadline.theory.attention._assumptions import rows_at_most_one
from leadline.theory.attention._bound import BOUNDS, AttentionFacts, Bound


@BOUNDS.register("sqrt-queries")
class SqrtQueries(Bound):
    """|A|_2 <= sqrt(m) for m queries; sqrt(n) for a square A.

    Assumptions: rows sum to at most one, as every softmax row does. Proof: a column holds m weights
    of at most one each, so c_max <= m. Attained exactly when every query looks at one and the same
    key.
    """

    title = "square root of the number of queries"
    statement = "|A|₂ <= √m (a square A: √n)"
    source = "Deep Dive into Transformer Architecture, section 2.1, equation 7"

    def conditions(self, facts: AttentionFacts) -> list[Condition]:
        return [rows_at_most_one(facts)]

    def value(self, facts: AttentionFacts) -> float:
        return math.sqrt(facts.queries)
