"""The bound of `any-mask` at the range of the logits that was measured."""

from __future__ import annotations

from leadline.theory.attention._bound import BOUNDS
from leadline.theory.attention.any_mask import AnyMask


@BOUNDS.register("any-mask-measured")
class AnyMaskMeasured(AnyMask):
    """`any-mask` with D = the largest measured range of one row's logits, as they enter the softmax.

    Assumptions: on the mask, those of `any-mask`; none on norms, weights or positions. The proof is
    the same, which uses nothing but D.
    """

    title = "any mask, from the measured logits"
    statement = "|A|₂² <= Σ_i max_(k <= m_i) (k e^(2D) + m_i - k) / (k e^D + m_i - k)², D measured"
    source = "as `any-mask`, between theory and measurement"
    span_from = "measurement"
