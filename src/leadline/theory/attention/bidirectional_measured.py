"""The bound of `bidirectional` at the range of the logits that was measured."""

from __future__ import annotations

from leadline.theory.attention._bound import BOUNDS
from leadline.theory.attention.bidirectional import Bidirectional


@BOUNDS.register("bidirectional-measured")
class BidirectionalMeasured(Bidirectional):
    """`bidirectional` with D = the largest measured range of one row's logits, as they enter the softmax.

    Assumptions: on the mask, those of `bidirectional`; none on norms, weights or positions. The proof is
    the same, which uses nothing but D.
    """

    title = "without a mask, from the measured logits"
    statement = "|A|₂² <= n max_k (k e^(2D) + n - k) / (k e^D + n - k)², D measured"
    source = "as `bidirectional`, between theory and measurement"
    span_from = "measurement"
