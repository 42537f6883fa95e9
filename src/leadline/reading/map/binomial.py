"""How surely a share is known from few trials: the interval of Clopper and Pearson.

Of n trials k succeeded. With X ~ Binomial(n, p) and a = 1 - confidence, the interval is

    low:  the p with P(X >= k | p) = a / 2,  0 if k = 0
    high: the p with P(X <= k | p) = a / 2,  1 if k = n

Both tails are monotone in p, so bisection finds the ends. The interval holds the true p in at
least the stated share of all experiments, whatever p is; for few trials in more (Clopper and
Pearson 1934, Biometrika 26, 404-413).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["binomial_interval"]

_HALVINGS = 60
"""Bisections of [0, 1]: 2^-60 is below the rounding of a float near 1."""


def binomial_interval(
    successes: int, trials: int, *, confidence: float = 0.95
) -> tuple[float, float]:
    """Return the ends of the interval; (0, 1) where nothing was tried."""
    if trials == 0:
        return 0.0, 1.0
    tail = (1.0 - confidence) / 2
    low = high = 0.0
    if successes > 0:
        low = _crossing(lambda p: _at_most(trials - successes, trials, 1.0 - p) >= tail)
    if successes < trials:
        high = _crossing(lambda p: _at_most(successes, trials, p) <= tail)
    return low, high if successes < trials else 1.0


def _at_most(count: int, trials: int, p: float) -> float:
    """P(X <= count)."""
    return math.fsum(
        math.comb(trials, k) * p**k * (1.0 - p) ** (trials - k) for k in range(count + 1)
    )


def _crossing(reached: Callable[[float], bool]) -> float:
    """The smallest p in [0, 1] from which on the condition holds."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return (low + high) / 2
