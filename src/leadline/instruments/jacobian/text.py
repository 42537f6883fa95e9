"""The answers of `leadline jacobian` and `leadline lyapunov`: what the numbers say, in sentences."""

from __future__ import annotations

import math

from leadline.instruments.jacobian.result import Jacobian, Lyapunov
from leadline.record.words.numbers import format_number

__all__ = ["jacobian_answer", "lyapunov_answer"]


def jacobian_answer(result: Jacobian) -> str:
    """Say how much a change of the stream is stretched, and how far J is from the identity."""
    single = "The block" if result.sublayer is None else "The write"
    where = single if result.end == result.start + 1 else "The stretch"
    norm, distance = (format_number(float(one.mean())) for one in (result.norm, result.distance))
    answer = (
        f"{where} multiplies a random small change of the stream by {norm} and is {distance} away "
        "from the identity (root mean squares over all directions)."
    )
    if result.values.shape[1]:
        most = format_number(float(result.values[:, 0].max()))
        answer += f" No change comes out more than {most} times as large."
    return answer


def lyapunov_answer(result: Lyapunov) -> str:
    """Say by what factor the leading direction grows or fades in a layer, and in all."""
    what = "Gradients" if result.backward else "Small changes of the stream"
    exponent = float(result.exponents[:, 0].mean())
    if exponent == -math.inf:
        return f"{what} die out: no direction passes all layers."
    log10 = exponent * result.depth / math.log(10)
    total = f"{10**log10:.3g}" if abs(log10) < 3 else f"10^{log10:.1f}"
    several = f", and by {total} in all {result.depth}" if result.depth > 1 else ""
    return (
        f"{what} {'grow' if exponent > 0 else 'fade'}: on their way through a layer the strongest "
        f"direction is multiplied by {math.exp(exponent):.4g}{several}."
    )
