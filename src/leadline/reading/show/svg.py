"""The kit of which pictures in SVG are made: axes with round numbers, lines with gaps, texts.

Axes are linear, logarithmic, or "exponent": for logarithms of any size, linear up to about one and
logarithmic beyond, asinh(value / 2).
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "PictureAxis",
    "axis_frame",
    "covers",
    "fit_axis",
    "line_pieces",
    "path_of",
    "round_numbers",
    "short",
    "svg_text",
    "tick_text",
]

Place = tuple[float, float]
_APART = 26
"""The least distance of two ticks of an exponent."""
_RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


@dataclass(frozen=True)
class PictureAxis:
    """Numbers to places from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    scale: Literal["linear", "log", "exponent"] = "linear"

    def at(self, value: float) -> float:
        """Where a number stands."""
        low, high, place = (self._stretched(v) for v in (self.low, self.high, value))
        return self.start + (self.end - self.start) * (place - low) / ((high - low) or 1.0)

    def shows(self, value: float) -> bool:
        """Whether a number has a place at all."""
        return math.isfinite(value) and (value > 0 or self.scale != "log")

    def ticks(self, count: int = 5) -> list[tuple[float, str]]:
        """Round numbers and how they are written."""
        if self.scale == "exponent":
            return self._exponents()
        if self.scale == "linear":
            return [(one, tick_text(one)) for one in round_numbers(self.low, self.high, count)]
        low, high = math.log10(self.low), math.log10(self.high)
        if high - low >= 2:
            step = max(1, math.ceil((high - low) / (count + 2)))
            powers = range(math.ceil(low / step) * step, math.floor(high) + 1, step)
            return [(10.0**power, _power_text(power)) for power in powers]
        factors = (1, 2, 5) if high - low > 0.5 else (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)
        powers = range(math.floor(low), math.ceil(high) + 1)
        inside = [m * 10.0**p for p in powers for m in factors if self._holds(m * 10.0**p)]
        if len(inside) < 2:
            inside = [tick for tick in round_numbers(self.low, self.high, count) if tick > 0]
        return [(tick, tick_text(tick)) for tick in inside]

    def _holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    def _stretched(self, value: float) -> float:
        if self.scale == "exponent":
            return math.asinh(value / 2)
        return math.log10(value) if self.scale == "log" else value

    def _exponents(self) -> list[tuple[float, str]]:
        # The rounder a number, the sooner it gets its place.
        rounded = [0.0, *(m * 10.0**k for m in (1, 5, 2) for k in range(20))]
        kept: list[float] = []
        for tick in (sign * value for value in rounded for sign in (1, -1)):
            apart = all(abs(self.at(tick) - self.at(other)) >= _APART for other in kept)
            if self._holds(tick) and apart:
                kept.append(tick)
        return [
            (tick, tick_text(tick) if abs(tick) >= 1e6 else f"{tick:,.0f}".replace("-", "−"))
            for tick in sorted(kept)
        ]


def fit_axis(
    values: Sequence[float],
    *,
    start: float,
    end: float,
    room: float,
    scale: Literal["linear", "log", "exponent"] = "linear",
    least: float = 0.02,
) -> PictureAxis:
    """An axis that holds the values with some room; on a logarithmic one only positive ones."""
    shown = [v for v in values if math.isfinite(v) and (v > 0 or scale != "log")]
    if not shown:
        return PictureAxis(0.1 if scale == "log" else 0.0, 1.0, start, end, scale)
    low, high = min(shown), max(shown)
    if scale == "exponent":
        # A margin as the eye sees it, on the stretched axis.
        ends = [math.asinh(value / 2) for value in (low, high)]
        more = (ends[1] - ends[0]) * room or 0.1
        low, high = (2 * math.sinh(value) for value in (ends[0] - more, ends[1] + more))
    elif scale == "log":
        ends = [math.log10(value) for value in (low, high)]
        more = max((ends[1] - ends[0]) * room, least)
        low, high = 10 ** max(ends[0] - more, -307.0), 10 ** min(ends[1] + more, 308.0)
    else:
        more = (high - low) * room or 0.1 * abs(high) or 1.0
        # A line that moves by nothing but rounding stands flat in the middle.
        more = max(more, 1e-9 * max(abs(low), abs(high)))
        low, high = max(low - more, -1.7e308), min(high + more, 1.7e308)
    return PictureAxis(low, high, start, end, scale)


def round_numbers(low: float, high: float, count: int) -> list[float]:
    """About `count` round numbers between two ends."""
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def tick_text(value: float) -> str:
    """Write a round number: 0.25, 1000, 10⁻⁷, −2.5×10⁸."""
    mantissa, _, power = f"{float(f'{value:.6g}'):e}".partition("e")
    digits, exponent = f"{float(mantissa):g}", int(power)
    if value == 0 or -3 < exponent < 5:
        return f"{float(f'{value:.6g}'):g}".replace("-", "−")
    ten = f"10{str(exponent).translate(_RAISED)}"
    if digits in ("1", "-1"):
        return f"{'−' if digits == '-1' else ''}{ten}"
    return f"{digits.replace('-', '−')}×{ten}"


def _power_text(power: int) -> str:
    return f"{10.0**power:g}" if -2 <= power <= 3 else f"10{str(power).translate(_RAISED)}"


def svg_text(words: str, x: float, y: float, kind: str = "", *, anchor: str = "") -> str:
    """A text at a place; `kind` is its class, `anchor` the side on which it ends there."""
    css = f' class="{kind}"' if kind else ""
    side = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text{css} x="{short(x)}" y="{short(y)}"{side}>{html.escape(words)}</text>'


def axis_frame(
    across: PictureAxis,
    up: PictureAxis,
    *,
    stations: Sequence[tuple[float, str]],
    levels: Sequence[tuple[float, str]],
    drop: float = 18,
    margin: float = 0,
    edge: float = math.inf,
) -> str:
    """Grid lines at the levels, ticks at the stations below, and the axis.

    Lines go `margin` beyond the ends of the axis, texts stand `drop` below it and not beyond the
    right `edge` of the picture.
    """
    bottom, left, right = up.start, across.start - margin, across.end + margin
    grid = "".join(f"M{short(left)} {up.at(v):.1f}H{short(right)}" for v, _ in levels)
    below = "".join(f"M{across.at(v):.1f} {short(bottom)}v4" for v, _ in stations)
    texts = [svg_text(t, left - 7, up.at(v) + 4, "soft", anchor="end") for v, t in levels]
    for value, text in stations:
        x = across.at(value)
        last = x > edge - 16
        side = "end" if last else "middle"
        texts.append(svg_text(text, edge if last else x, bottom + drop, "soft", anchor=side))
    axis = f"{below}M{short(left)} {short(bottom)}H{short(right)}"
    return f'<path class="grid" d="{grid}"/><path class="axis" d="{axis}"/>{"".join(texts)}'


def line_pieces(
    xs: Sequence[float], ys: Sequence[float], across: PictureAxis, up: PictureAxis
) -> list[list[Place]]:
    """The points of a line, broken where a value has no place."""
    pieces: list[list[Place]] = [[]]
    for x, y in zip(xs, ys, strict=True):
        if across.shows(x) and up.shows(y):
            pieces[-1].append((across.at(x), up.at(y)))
        elif pieces[-1]:
            pieces.append([])
    return [piece for piece in pieces if piece]


def path_of(points: Sequence[Place]) -> str:
    """The points joined by straight lines, as data of a path."""
    return "M" + "L".join(f"{short(x)} {short(y)}" for x, y in points)


def short(place: float) -> str:
    """A place to a tenth of a pixel."""
    return f"{place:.1f}".removesuffix(".0")


def covers(later: Sequence[Sequence[Place]], line: Sequence[Sequence[Place]], near: float) -> bool:
    """Whether one line lies on another: all of its points are nearer than this."""
    above, below = ([point for piece in one for point in piece] for one in (later, line))
    return len(above) == len(below) and all(
        math.dist(a, b) < near for a, b in zip(above, below, strict=True)
    )
