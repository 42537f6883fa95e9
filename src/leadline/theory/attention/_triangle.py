"""The norm of the smallest triangle that stands over every causal attention of span D.

In row i of a full lower triangle the largest weight is at most b_i = 1 / (1 + (i-1) e^{-D}), so
0 <= A <= B entry by entry with B_ij = b_i for j <= i, and |A|_2 <= |B|_2. Since b_i <= e^D / i, B
stands under e^D times the averaging matrix of Cesaro, whose norm is below 2 (Hardy's inequality).

B z is a running sum, so a power step costs O(n). For any z > 0 (Collatz and Wielandt)

    |B|_2^2 <= max_i (B'B z)_i / z_i,

which every power step lowers, down to the norm itself; it is a bound wherever they end.
"""

from __future__ import annotations

import math

import numpy as np

__all__ = ["triangle_norm"]

CLOSE = 1e-12
"""Power steps end when one lowers the bound by less than this part of it."""


def triangle_norm(n: int, span: float, *, unless_above: float = math.inf) -> float:
    """Return an upper bound of |B|_2, tight to about 1e-11; infinity where it is above a limit."""
    row = np.arange(n, dtype=np.float64)
    top = 1.0 / (1.0 + row * math.exp(-span))
    image = top * (row + 1.0)  # B times the vector of ones
    if math.sqrt(float(np.square(image).mean())) > unless_above:
        return math.inf
    z = 1.0 / np.sqrt(row + 1.0)
    highest = math.inf
    while True:
        after = np.cumsum((np.square(top) * np.cumsum(z))[::-1])[::-1]
        before, highest = highest, min(highest, float((after / z).max()))
        if not highest < before * (1.0 - CLOSE):
            break
        z = after / after[0]
    # Two running sums of n positive terms and a few products, halved by the root.
    rounding = (n + 4) * float(np.finfo(np.float64).eps)
    return math.sqrt(highest) * (1.0 + rounding)
