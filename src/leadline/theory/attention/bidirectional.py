"""The sharp bound without a mask: |A|_2^2 <= m max_k (k e^{2D} + n - k) / (k e^D + n - k)^2."""

from __future__ import annotations

import math

from leadline.theory._condition import Condition
from leadline.theory.attention._assumptions import every_key_is_seen
from leadline.theory.attention._bound import BOUNDS, AttentionFacts
from leadline.theory.attention._row_ratio import row_concentration
from leadline.theory.attention._span_bound import SpanBound


@BOUNDS.register("bidirectional")
class Bidirectional(SpanBound):
    """|A|_2^2 <= n max_k (k e^{2D} + n - k) / (k e^D + n - k)^2, D = Delta of the weights.

    Assumptions: no mask, a norm before the projections (or a norm on queries and keys); rows sum
    to at most one. Biases, rotary positions, a soft cap, additive biases and any scaling are part
    of Delta. Proof: |A|_2^2 <= |A|_F^2, the sum over rows of sums of squares, each at most the
    quotient (see `_row_ratio`). Sharp among matrices whose rows are so bounded: a matrix of equal
    rows attains it.
    """

    title = "without a mask, from the weights"
    statement = "|A|₂² <= n max_k (k e^(2Δ) + n - k) / (k e^Δ + n - k)²"
    source = "the row form of Pólya and Szegő 1925, at whole k"

    def mask_conditions(self, facts: AttentionFacts) -> list[Condition]:
        return [every_key_is_seen(facts)]

    def at_span(self, facts: AttentionFacts, span: float) -> float:
        return math.sqrt(facts.queries * float(row_concentration([facts.keys], span)[0]))


@BOUNDS.register("bidirectional-measured")
class BidirectionalMeasured(Bidirectional):
    """`bidirectional` with D = the largest measured range of a row's logits as they enter the softmax.

    Assumptions: on the mask, those of `bidirectional`; none on norms, weights or positions. The proof
    is the same, which uses nothing but D.
    """

    title = "without a mask, from the measured logits"
    statement = "|A|₂² <= n max_k (k e^(2D) + n - k) / (k e^D + n - k)², D measured"
    source = "as `bidirectional`, between theory and measurement"
    span_from = "measurement"
