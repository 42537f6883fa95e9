"""Arithmetic with log10 of numbers that are not negative: -inf is zero, +inf is beyond float.

Zero times anything is zero, also times what has overflown: a layer whose weights are zero leaves
no residual, however large the bound before it has become.
"""

from __future__ import annotations

import math

__all__ = ["log10", "product", "tower"]

_DEEPEST = 646
"""3^646 is the last power of three below the largest float."""


def log10(value: float) -> float:
    """Return the logarithm; -inf of zero, NaN of what is negative or NaN."""
    if value > 0.0:
        return math.log10(value) if value < math.inf else math.inf
    return -math.inf if value == 0.0 else math.nan


def product(*logs: float) -> float:
    """Return the logarithm of a product: the sum, where a zero wins over an infinity."""
    if any(math.isnan(one) for one in logs):
        return math.nan
    return -math.inf if -math.inf in logs else sum(logs)


def tower(factor: float, start: float, layers: int) -> float:
    """Return log10 of c^((3^L - 1)/2) r^(3^L), from c = 10^factor, r = 10^start and L layers.

    It is r' = c r^3, L times: 3^L (factor/2 + start) - factor/2.
    """
    if layers == 0 or start == -math.inf:
        return start
    if not (math.isfinite(factor) and math.isfinite(start)):
        return product(factor, start)
    rate = 0.5 * factor + start
    power = 3.0**layers if layers <= _DEEPEST else math.inf
    return power * rate - 0.5 * factor if rate else -0.5 * factor
