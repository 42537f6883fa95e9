"""How concentrated a softmax row can be when its logits differ by at most D.

With m allowed keys the weights are p_j = w_j / sum w with w_j in [1, e^D] after a common factor.
The sum of squares sum w^2 / (sum w)^2, seen as a function of one w_j alone, first falls and then
rises, so it is largest at an end; hence for some k weights stand at e^D and the others at 1:

    sum_j p_j^2 <= max_k (k e^{2D} + m - k) / (k e^D + m - k)^2 <= cosh(D/2)^2 / m.

As a function of a real k the quotient rises up to k = m / (e^D + 1), where it is the right-hand
side, and falls after it: the best whole k is one of that point's two neighbours. Everything is
computed with e^{-D}, which cannot overflow. With a sink e^s the denominator of p_j is larger and
the bound stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["row_concentration", "row_sum_bound"]

Floats = npt.NDArray[np.float64]


def row_concentration(allowed: Sequence[int], span: float) -> Floats:
    """Return the largest sum of squared weights of a row, for each number of allowed keys.

    A row that may see no key is a row of zeros.
    """
    counts = np.asarray(allowed, dtype=np.float64)
    m = np.maximum(counts, 1.0)
    small = math.exp(-span)
    below = np.floor(m * (small / (1.0 + small)))
    first, second = (
        (k + (m - k) * (small * small)) / np.square(k + (m - k) * small)
        for k in (np.maximum(below, 1.0), np.minimum(below + 1.0, m))
    )
    return np.where(counts > 0, np.maximum(first, second), 0.0)


def row_sum_bound(allowed: Sequence[int], span: float) -> float:
    """Return the square root of the sum over rows: a bound of the Frobenius norm."""
    return math.sqrt(float(row_concentration(allowed, span).sum()))
