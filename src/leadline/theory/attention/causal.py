"""The bound for the plain causal mask, the full lower triangle."""

from __future__ import annotations

from leadline.theory._condition import Condition
from leadline.theory.attention._assumptions import full_lower_triangle
from leadline.theory.attention._bound import BOUNDS, AttentionFacts
from leadline.theory.attention._row_ratio import row_sum_bound
from leadline.theory.attention._span_bound import SpanBound
from leadline.theory.attention._triangle import triangle_norm


@BOUNDS.register("causal")
class Causal(SpanBound):
    """|A|_2 <= min{sqrt(sum_i max_k (k e^{2D} + i - k) / (k e^D + i - k)^2), |B|_2}, D = Delta.

    B is the lower triangle with 1 / (1 + (i-1) e^{-D}) in row i.
    Assumptions: query i sees keys 1 to i, all of them; a norm before the projections (or a norm on
    queries and keys); rows sum to at most one. For other masks the second form is false: window 2
    plus the first key at D = 0 and n = 256 has |A|_2 = 5.47, above 2. Proof: the first form is
    the Frobenius norm row by row (`_row_ratio`); it is at most sqrt(sum_i 1 / (1 + (i-1) e^{-D})),
    the largest column sum, because a row's sum of squares is at most its largest weight. The
    second form stands over A entry by entry and is below 2 e^D (`_triangle`), whatever n is; at
    D = 0 it is attained.
    """

    title = "causal, from the weights"
    statement = "|A|₂ <= min{√Σ_i max_k (k e^(2Δ) + i - k) / (k e^Δ + i - k)², |B|₂ < 2 e^Δ}"
    source = "row by row as without a mask; Hardy's inequality for the averaging matrix"

    def mask_conditions(self, facts: AttentionFacts) -> list[Condition]:
        return [full_lower_triangle(facts)]

    def at_span(self, facts: AttentionFacts, span: float) -> float:
        rows = row_sum_bound(range(1, facts.queries + 1), span)
        return min(rows, triangle_norm(facts.queries, span, unless_above=rows))


@BOUNDS.register("causal-measured")
class CausalMeasured(Causal):
    """`causal` with D = the largest measured range of a row's logits as they enter the softmax.

    Assumptions: on the mask, those of `causal`; none on norms, weights or positions. The proof
    is the same, which uses nothing but D.
    """

    title = "causal, from the measured logits"
    statement = (
        "|A|₂ <= min{√Σ_i max_k (k e^(2D) + i - k) / (k e^D + i - k)², |B|₂ < 2 e^D}, D measured"
    )
    source = "as `causal`, between theory and measurement"
    span_from = "measurement"
