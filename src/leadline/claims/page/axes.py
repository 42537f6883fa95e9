"""Axes of the page's pictures: which numbers stand where, and which are written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from leadline.claims.page.words import number

__all__ = ["SQUARE", "PageAxis", "fitted", "squared"]

SQUARE = 330
"""The side of a picture whose axes have the same unit."""


@dataclass(frozen=True)
class PageAxis:
    """Numbers to places from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """Where a number stands."""
        low, high, own = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (self.end - self.start) * (own - low) / (high - low)

    def shows(self, value: float) -> bool:
        """Whether a number has a place at all."""
        return math.isfinite(value) and (value > 0 or not self.log)

    def ticks(self, count: int = 5) -> list[tuple[float, str]]:
        """Round numbers and how they are written."""
        if not self.log:
            return [(tick, _plain(tick)) for tick in _round(self.low, self.high, count)]
        low, high = math.log10(self.low), math.log10(self.high)
        if high - low >= 2:
            step = max(1, math.ceil((high - low) / (count + 2)))
            powers = range(math.ceil(low / step) * step, math.floor(high) + 1, step)
            return [(10.0**power, _power(power)) for power in powers]
        some = [
            m * 10.0**power
            for power in range(math.floor(low), math.ceil(high) + 1)
            for m in ((1, 2, 5) if high - low > 0.5 else (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9))
        ]
        inside = [tick for tick in some if self.low <= tick <= self.high]
        if len(inside) < 2:
            inside = [t for t in _round(self.low, self.high, count) if t > 0]
        return [(tick, _plain(tick)) for tick in inside]


def fitted(
    values: Sequence[float],
    *,
    log: bool,
    start: float,
    end: float,
    room: float,
    least: float = 0.02,
) -> PageAxis:
    """An axis that holds the values with some room; on a logarithmic one only positive ones."""
    shown = [v for v in values if math.isfinite(v) and (v > 0 or not log)]
    if not shown:
        return PageAxis(0.1 if log else 0.0, 1.0, start, end, log)
    low, high = min(shown), max(shown)
    if log:
        ends = math.log10(low), math.log10(high)
        more = max((ends[1] - ends[0]) * room, least)
        return PageAxis(
            10 ** max(ends[0] - more, -307.0),
            10 ** min(ends[1] + more, 308.0),
            start,
            end,
            log=True,
        )
    more = (high - low) * room or max(abs(high) * 0.1, 1e-300)
    # A line that moves by nothing but rounding stands flat in the middle.
    more = max(more, 1e-9 * max(abs(low), abs(high)))
    return PageAxis(max(low - more, -1.7e308), min(high + more, 1.7e308), start, end)


def squared(
    x_values: Sequence[float], y_values: Sequence[float]
) -> tuple[int, int, PageAxis, PageAxis]:
    """Axes with the same unit in a picture that is as high as it must be."""
    across = fitted(x_values, log=False, start=30, end=SQUARE - 8, room=0.06)
    up = fitted(y_values, log=False, start=1, end=0, room=0.06)
    unit = (SQUARE - 38) / (across.high - across.low)
    tall = unit * (up.high - up.low)
    if tall > SQUARE:  # as wide as it must be, then
        unit *= SQUARE / tall
        tall = float(SQUARE)
        middle, half = (across.low + across.high) / 2, (SQUARE - 38) / unit / 2
        across = PageAxis(middle - half, middle + half, 30, SQUARE - 8)
    height = round(tall) + 8 + 22
    return SQUARE, height, across, PageAxis(up.low, up.high, height - 22, 8)


def _round(low: float, high: float, count: int) -> list[float]:
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def _plain(tick: float) -> str:
    return "0" if tick == 0 else number(float(f"{tick:.6g}"), digits=4)


def _power(power: int) -> str:
    if -2 <= power <= 3:
        return f"{10.0**power:g}"
    return "10" + str(power).translate(str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"))
