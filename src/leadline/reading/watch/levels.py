"""Medians and noise of rows in which values may be missing or not finite."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["levels_of", "noise_of", "row_medians"]


def levels_of(values: NDArray[np.float64], *, logarithmic: bool) -> NDArray[np.float64]:
    """Return values as heights of a scale: logarithms where that is asked, minus infinity at zero."""
    if not logarithmic:
        return values
    levels = np.full(values.shape, np.nan)
    np.log(values, out=levels, where=values > 0)
    levels[values <= 0] = -np.inf
    return levels


def row_medians(
    levels: NDArray[np.float64], usable: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """Return the median of every row over its usable finite levels, 0 where it has none."""
    finite = np.isfinite(levels) if usable is None else usable & np.isfinite(levels)
    counts = finite.sum(axis=1)
    ordered = np.sort(np.where(finite, levels, np.inf), axis=1)
    rows = np.arange(len(levels), dtype=np.int64)
    last = np.maximum(counts - 1, 0)
    below, above = ordered[rows, last // 2], ordered[rows, (last + 1) // 2]
    return np.where(counts > 0, below / 2 + above / 2, 0.0)


def noise_of(
    levels: NDArray[np.float64], usable: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """Return how far neighbouring samples of every row are apart, as a standard deviation.

    It is taken from the median difference of neighbours, which neither a slow change nor a few
    jumps widen; 0 for rows of fewer than three finite levels.
    """
    finite = np.isfinite(levels) if usable is None else usable & np.isfinite(levels)
    noise = np.zeros(len(levels))
    for row, known in enumerate(finite):
        values = levels[row, known]
        if len(values) > 2:
            noise[row] = 1.4826 * float(np.median(np.abs(np.diff(values)))) / math.sqrt(2)
    return noise
