"""Numbers and lines in few letters: for tables, text and notebooks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from leadline.record.quantity import Scale

__all__ = ["align", "format_count", "format_number", "sparkline"]

BARS = "▁▂▃▄▅▆▇█"
PLAIN_BARS = "_.-=+*#@"  # for output that cannot carry the bars
FLAT = 0.2
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
    whole = len(str(int(size)))
    return f"{value:.0f}" if whole >= digits else f"{value:.{digits}g}"


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
    scale: Scale = "linear",
    width: int = 24,
    low: float | None = None,
    high: float | None = None,
    bars: str = BARS,
) -> str:
    """Draw a line in one row of bars, from the lowest to the highest value.

    On a log scale heights are logarithms, unless a value is not positive. More values than
    `width` are averaged in groups. A line that moves by less than a fifth is not stretched.
    `low` and `high` fix the ends, so that two lines compare.
    """
    level = np.asarray(values, dtype=np.float64)
    ends = np.array([np.nan if end is None else end for end in (low, high)])
    finite = np.isfinite(level)
    in_logarithms = scale == "log" and bool(np.all(level[finite] > 0)) and not np.any(ends <= 0)
    if in_logarithms:
        level = np.log(level, out=level.copy(), where=finite)
        ends = np.log(ends)
    if len(level) > width:
        level = np.array([_mean_of_finite(part) for part in np.array_split(level, width)])
        finite = np.isfinite(level)
    bottom = float(ends[0]) if low is not None else _least(level[finite])
    top = float(ends[1]) if high is not None else -_least(-level[finite])
    bottom, top = _widen(bottom, top, 1.0 if in_logarithms else max(abs(bottom), abs(top)))
    return "".join(_bar(float(value), bottom, top, bars) for value in level)


def align(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> list[str]:
    """Set cells in columns; the columns numbered in `right` are set flush right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _bar(value: float, bottom: float, top: float, bars: str) -> str:
    if math.isnan(value):
        return NOT_A_NUMBER if bars == BARS else "?"
    if math.isinf(value):
        return INFINITE if bars == BARS else "!"
    share = min(max((value - bottom) / (top - bottom), 0.0), 1.0)
    return bars[min(int(share * len(bars)), len(bars) - 1)]


def _widen(bottom: float, top: float, size: float) -> tuple[float, float]:
    """Give a nearly constant line a range of its size's fifth, so that it looks nearly constant."""
    lacking = FLAT * size - (top - bottom)
    if lacking <= 0 and top > bottom:
        return bottom, top
    half = max(lacking, 1e-300) / 2
    return bottom - half, top + half


def _mean_of_finite(part: np.ndarray) -> float:
    finite = part[np.isfinite(part)]
    return float(np.mean(finite)) if len(finite) else float(part[0])


def _least(level: np.ndarray) -> float:
    return float(np.min(level)) if len(level) else 0.0
