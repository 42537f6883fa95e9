"""Numbers and lines in few letters: for tables, text and notebooks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from leadline.record.rows.quantity import AxisScale

__all__ = ["format_clock", "format_count", "format_number", "heights", "in_bytes", "sparkline"]

BARS = "▁▂▃▄▅▆▇█"
PLAIN_BARS = "_.-=+*#@"  # for output that cannot carry the bars
FLAT = 0.2
"""A line that moves by less than this share is not stretched to the height of the drawing."""
NOT_A_NUMBER = "·"
INFINITE = "∞"


def format_number(value: float, *, digits: int = 4) -> str:
    """Write a number with about `digits` digits: `12.35`, `0.001234`, `1.23e-7`."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    size = abs(value)
    if size == 0:
        return "0"
    if size < 0.99995e-3 or size >= 99999.5:
        mantissa, exponent = f"{value:.{min(digits, 3) - 1}e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    integer_digits = len(str(int(size)))
    return f"{value:.0f}" if integer_digits >= digits else f"{value:.{digits}g}"


def format_clock(seconds: float) -> str:
    """Write seconds as a clock does.

    >>> format_clock(7.9), format_clock(750), format_clock(3723)
    ('0:07', '12:30', '1:02:03')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def format_count(count: float) -> str:
    """Write a large whole number in words a person reads: `124.4 M`."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if count >= size:
            unit = 1e3 if letter == "k" else size
            return f"{count / unit:.1f} {letter}"
    return f"{int(count):,}"


def sparkline(
    values: ArrayLike,
    *,
    scale: AxisScale = "linear",
    width: int = 24,
    ends: tuple[float, float] | None = None,
    bars: str = BARS,
) -> str:
    """Draw a line in one row of bars, from the lowest to the highest value.

    More values than `width` are averaged in groups; a group with a value that is not finite shows
    it. `ends` fixes the lowest and the highest bar, so that two lines compare.
    """
    height, (bottom, top) = heights(values, scale=scale, ends=ends)
    if len(height) > width:
        height = np.array([_mean(part) for part in np.array_split(height, width)])
    return "".join(_bar(float(value), bottom, top, bars) for value in height)


def heights(
    values: ArrayLike, *, scale: AxisScale, ends: tuple[float, float] | None = None
) -> tuple[NDArray[np.float64], tuple[float, float]]:
    """Return how high each value stands in a drawing, and its lower and upper edge.

    On a log scale heights are logarithms, unless a value is not positive. Otherwise they are
    shares of the largest size, so that no difference of two of them overflows. The edges are the
    lowest and the highest value (or `ends`), but a line that moves by less than a fifth is not
    stretched to fill the drawing.
    """
    level = np.asarray(values, dtype=np.float64)
    together = np.append(level, () if ends is None else ends)
    finite = np.isfinite(together)
    if scale == "log" and bool(np.all(together[finite] > 0)):
        together = np.log(together, out=together.copy(), where=finite)
    else:
        together = together / (float(np.max(np.abs(together[finite]), initial=0.0)) or 1.0)
    inside = together[finite]
    bottom, top = (float(inside.min()), float(inside.max())) if len(inside) else (0.0, 0.0)
    margin = max(0.0, FLAT - (top - bottom)) / 2
    return together[: len(level)], (bottom - margin, top + margin)


def _bar(value: float, bottom: float, top: float, bars: str) -> str:
    if math.isnan(value):
        return NOT_A_NUMBER if bars == BARS else "?"
    if math.isinf(value):
        return INFINITE if bars == BARS else "!"
    share = min(max((value - bottom) / (top - bottom), 0.0), 1.0)
    return bars[min(int(share * len(bars)), len(bars) - 1)]


def _mean(part: NDArray[np.float64]) -> float:
    odd = part[~np.isfinite(part)]
    return float(odd[0]) if len(odd) else float(part.mean())


def in_bytes(count: float) -> str:
    """A number of bytes in words.

    >>> in_bytes(2_140_000_000), in_bytes(52_000_000), in_bytes(3_400)
    ('2.1 GB', '52 MB', '3 kB')
    """
    if count >= 1e9:
        return f"{count / 1e9:,.1f} GB"
    return f"{count / 1e6:.0f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"
