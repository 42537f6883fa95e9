"""From the values of a map to shades: which of a few levels each cell has, and what they mean.

Levels are equal steps of the quantity's own scale, logarithmic where its definition says so, from
the lowest to the highest value of the map. A map that hardly changes is not stretched: its cells
are all near the middle. Zero on a logarithmic scale has the lowest shade, and the legend says so. `relative` shades every
row against its own median over the run, so that a change shows where layers differ much. With
`steady` a cell keeps the shade of the one before it in its row while its value is not far beyond the
edge of that shade, so that noise does not make a row flicker between two of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from leadline.reading.watch.levels import levels_of, row_medians
from leadline.record.words.numbers import FLAT, format_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from leadline.reading.watch.heat import HeatMap

__all__ = ["LOST", "UNKNOWN", "Shading", "shade"]

UNKNOWN, LOST = -1, -2
"""The shade of a cell in which nothing was read, and of a value that is not finite."""
HUGE = 1e307
"""Values beyond are shaded as this one."""
FARTHEST = 700.0
"""The largest logarithm of a factor on a relative scale; what lies beyond has the last shade."""
Zeros = Literal["none", "some", "all"]
MARGIN = 0.3
"""A value keeps the shade of the one before up to so many steps of the scale beyond its edge."""


@dataclass(frozen=True, eq=False)
class Shading:
    """The shades of a map: 0 to `count` - 1, or UNKNOWN, or LOST.

    `low` and `high` are the ends of the scale, factors or differences where it is relative.
    `zeros` says whether values of a logarithmic scale are zero: none, some, or all of them.
    """

    shades: NDArray[np.int64]
    count: int
    low: float
    high: float
    logarithmic: bool
    relative: bool
    zeros: Zeros = "none"

    def limits(self, shade: int) -> tuple[float, float]:
        """The values between which a shade stands."""
        low, high = self.low, self.high
        ends = (shade / self.count, (shade + 1) / self.count)
        if self.logarithmic:
            step = math.log(high / low)
            return low * math.exp(ends[0] * step), low * math.exp(ends[1] * step)
        return low + ends[0] * (high - low), low + ends[1] * (high - low)

    def words(self, shade: int) -> str:
        """Say what a shade means: `about 0.027`, the middle of its step of the scale."""
        if shade == LOST:
            return "not finite"
        if self.zeros == "all":
            return "0"
        low, high = self.limits(shade)
        middle = math.sqrt(low) * math.sqrt(high) if self.logarithmic else (low + high) / 2
        return f"about {self.number(middle)}"

    def number(self, value: float) -> str:
        """Write a number of the scale: a factor has a sign of its own."""
        text = format_number(value, digits=2)
        if not self.relative:
            return text
        return f"×{text}" if self.logarithmic else f"{'+' if value > 0 else ''}{text}"


def shade(heat: HeatMap, count: int, *, relative: bool = False, steady: bool = False) -> Shading:
    """Return the shades of a map, `count` of them."""
    logarithmic = heat.group.quantity.scale == "log"
    levels = levels_of(heat.values, logarithmic=logarithmic)
    # Differences have to stay within float64; zeros of a logarithm stay what they are.
    levels = np.where(np.isfinite(levels), np.clip(levels, -HUGE, HUGE), levels)
    usable = heat.known & np.isfinite(levels)
    lost = heat.known & ~np.isfinite(heat.values)
    if relative:
        levels = levels - row_medians(levels, usable)[:, None]
    low, high = _ends(levels[usable], logarithmic=logarithmic, relative=relative)
    place = np.clip((np.where(usable, levels, low) - low) / (high - low), 0.0, 1.0)
    shades = np.minimum((place * count).astype(np.int64), count - 1)
    if steady:
        shades = _steadied(shades, place * count, usable)
    shades = np.where(lost, LOST, np.where(heat.known, shades, UNKNOWN))
    ends = (math.exp(low), math.exp(high)) if logarithmic else (low, high)
    zero = logarithmic and not relative and bool((heat.known & (heat.values == 0)).any())
    zeros: Zeros = "none" if not zero else "some" if usable.any() else "all"
    return Shading(shades, count, *ends, logarithmic, relative, zeros)


def _steadied(
    shades: NDArray[np.int64], places: NDArray[np.float64], usable: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Let cells keep the shade of the one before, each row from its first cell on."""
    for at in range(1, shades.shape[1]):
        before, here = shades[:, at - 1], places[:, at]
        near = (here > before - MARGIN) & (here < before + 1 + MARGIN)
        keeps = near & usable[:, at] & usable[:, at - 1]
        shades[keeps, at] = before[keeps]
    return shades


def _ends(levels: NDArray[np.float64], *, logarithmic: bool, relative: bool) -> tuple[float, float]:
    """The ends of the scale; a logarithm stays in the range of float64."""
    if len(levels) == 0:
        return (-1.0, 1.0) if relative or logarithmic else (0.0, 1.0)
    low, high = float(levels.min()), float(levels.max())
    size = 1.0 if logarithmic else max(abs(low), abs(high)) or 1.0
    if relative:
        high = max(abs(low), abs(high), FLAT * size / 2)
        high = min(high, FARTHEST) if logarithmic else high
        return -high, high
    margin = max(0.0, FLAT * size - (high - low)) / 2
    return low - margin, high + margin
