"""The bound without a mask that does not grow with n: |A|_2 <= cosh(D/2)."""

from __future__ import annotations

import math

from leadline.theory._condition import Condition
from leadline.theory.attention._assumptions import every_key_is_seen
from leadline.theory.attention._bound import BOUNDS, AttentionFacts
from leadline.theory.attention._span_bound import SpanBound


@BOUNDS.register("cosh")
class Cosh(SpanBound):
    """|A|_2 <= min{sqrt(n), cosh(D/2)}, D = Delta of the weights.

    Assumptions: those of `bidirectional`. Proof: the quotient there is largest, over all real k, at
    k = n / (e^D + 1), where it is cosh(D/2)^2 / n. For m queries and n keys
    min{sqrt(m), sqrt(m/n) cosh(D/2)}.
    """

    title = "without a mask, free of n, from the weights"
    statement = "|A|₂ <= min{√n, cosh(Δ/2)}"
    source = "Pólya and Szegő 1925; Kantorovich 1948"

    def mask_conditions(self, facts: AttentionFacts) -> list[Condition]:
        return [every_key_is_seen(facts)]

    def at_span(self, facts: AttentionFacts, span: float) -> float:
        root = math.sqrt(facts.keys)
        enough = math.log(2.0 * root)  # cosh is above the root from here on, and cannot overflow
        growth = math.cosh(min(span / 2.0, enough))
        return math.sqrt(facts.queries) * min(1.0, growth / root)


@BOUNDS.register("cosh-measured")
class CoshMeasured(Cosh):
    """`cosh` with D = the largest measured range of a row's logits as they enter the softmax.

    Assumptions: on the mask, those of `cosh`; none on norms, weights or positions. The proof
    is the same, which uses nothing but D.
    """

    title = "without a mask, free of n, from the measured logits"
    statement = "|A|₂ <= min{√n, cosh(D/2)}, D measured"
    source = "as `cosh`, between theory and measurement"
    span_from = "measurement"
