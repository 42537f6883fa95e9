"""The bound of `causal` at the range of the logits that was measured."""

from __future__ import annotations

from leadline.theory.attention._bound import BOUNDS
from leadline.theory.attention.causal import Causal


@BOUNDS.register("causal-measured")
class CausalMeasured(Causal):
    """`causal` with D = the largest measured range of one row's logits, as they enter the softmax.

    Assumptions: on the mask, those of `causal`; none on norms, weights or positions. The proof is
    the same, which uses nothing but D.
    """

    title = "causal, from the measured logits"
    statement = (
        "|A|₂ <= min{√Σ_i max_k (k e^(2D) + i - k) / (k e^D + i - k)², |B|₂ < 2 e^D}, D measured"
    )
    source = "as `causal`, between theory and measurement"
    span_from = "measurement"
