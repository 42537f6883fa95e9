"""The bound for any mask: it needs only how many keys each query may see."""

from __future__ import annotations

from leadline.theory._condition import Condition, assume
from leadline.theory.attention._bound import BOUNDS, AttentionFacts
from leadline.theory.attention._row_ratio import row_sum_bound
from leadline.theory.attention._span_bound import SpanBound


@BOUNDS.register("any-mask")
class AnyMask(SpanBound):
    """|A|_2^2 <= sum_i max_k (k e^{2D} + m_i - k) / (k e^D + m_i - k)^2, k <= m_i, D = Delta.

    Query i may see m_i keys. Assumptions: a norm before the projections (or a norm on queries and
    keys); rows sum to at most one. Windows, packed documents, padding and prefixes are all within
    it. Proof: the Frobenius norm, row by row (`_row_ratio`). Without a mask it is `bidirectional`.
    """

    title = "any mask, from the weights"
    statement = "|A|₂² <= Σ_i max_(k <= m_i) (k e^(2Δ) + m_i - k) / (k e^Δ + m_i - k)²"
    source = "row by row as without a mask"

    def mask_conditions(self, facts: AttentionFacts) -> list[Condition]:
        counted = bool(facts.allowed) or facts.mask != "other"
        return [
            assume(
                "it is known how many keys each query may see",
                counted,
                "the mask is neither empty nor causal, and its rows were not counted",
            )
        ]

    def at_span(self, facts: AttentionFacts, span: float) -> float:
        return row_sum_bound(facts.row_counts(), span)


@BOUNDS.register("any-mask-measured")
class AnyMaskMeasured(AnyMask):
    """`any-mask` with D = the largest measured range of a row's logits as they enter the softmax.

    Assumptions: on the mask, those of `any-mask`; none on norms, weights or positions. The proof
    is the same, which uses nothing but D.
    """

    title = "any mask, from the measured logits"
    statement = "|A|₂² <= Σ_i max_(k <= m_i) (k e^(2D) + m_i - k) / (k e^D + m_i - k)², D measured"
    source = "as `any-mask`, between theory and measurement"
    span_from = "measurement"
