"""The bound of `cosh` at the range of the logits that was measured."""

from __future__ import annotations

from leadline.theory.attention._bound import BOUNDS
from leadline.theory.attention.cosh import Cosh


@BOUNDS.register("cosh-measured")
class CoshMeasured(Cosh):
    """`cosh` with D = the largest measured range of one row's logits, as they enter the softmax.

    Assumptions: on the mask, those of `cosh`; none on norms, weights or positions. The proof is
    the same, which uses nothing but D.
    """

    title = "without a mask, free of n, from the measured logits"
    statement = "|A|₂ <= min{√n, cosh(D/2)}, D measured"
    source = "as `cosh`, between theory and measurement"
    span_from = "measurement"
