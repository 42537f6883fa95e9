"""The shape of a line over depth in words: how it changes on its way, and where.

A line is followed in the direction in which the signal goes: the stream forward from its first
layer, a gradient backward from its last. The change is a factor, from the start to the layer where
the value is farthest from it; what comes behind that layer is said too where it is large.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from leadline.record.words.numbers import format_number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from leadline.record.rows.profile import Profile
    from leadline.record.rows.quantity import AxisScale

__all__ = ["Course", "axis_text", "change_over_depth", "course_of", "factor_text", "shape_text"]

STEADY = 2.0
"""Below this factor a line keeps its size: norms of one design differ by less between seeds."""
EVENLY = 0.4
"""An even change needs half of the layers for half of itself. One that needs less than this share
of them has a place that can be named."""
FLAT = 0.05
"""A line is flat if its range is no larger than this share of its largest size."""
CLEAR = 0.25
"""A dip or a peak stands out from both ends by at least this share of the range."""


@dataclass(frozen=True, slots=True)
class Course:
    """How a line of positive values changes on its way.

    `factor` is the change from layer `start` to layer `far`, where the line is farthest from its
    start; `rest` the change from there to layer `end`. `most` is the shortest stretch of layers in
    which at least half of the change happens; None where it happens evenly. `gone` is the first
    layer at which the value is exactly zero, on a line that does not begin with zero.
    """

    start: int
    far: int
    end: int
    factor: float
    rest: float
    most: tuple[int, int] | None
    gone: int | None

    @property
    def size(self) -> float:
        """The factor of the change, whichever way it goes: at least 1."""
        if self.gone is not None:
            return math.inf
        return max(self.factor, 1 / self.factor)

    @property
    def shrinks(self) -> bool:
        """Whether it becomes smaller."""
        return self.gone is not None or self.factor < 1

    @property
    def words(self) -> str:
        """The change as the end of a sentence whose subject is the line."""
        if self.gone is not None:
            return f"is 0, or too small to be kept, from layer {self.gone} to layer {self.end}"
        if self.size < STEADY:
            share = f"{100 * (self.size - 1):.0f} %" if self.size < 1 + 2 * FLAT else ""
            return f"keeps its size within {share or f'a factor of {self.size:.2g}'}"
        verb = "shrinks" if self.shrinks else "grows"
        words = f"{verb} {factor_text(self.size)} from layer {self.start} to layer {self.far}"
        if self.most is not None and set(self.most) != {self.start, self.far}:
            first, last = self.most
            one_step = abs(first - last) == 1
            where = "in the step from layer {} to {}" if one_step else "between layers {} and {}"
            words += f", most of it {where.format(first, last)}"
        if max(self.rest, 1 / self.rest) >= STEADY:
            back = "shrinks" if self.rest < 1 else "grows"
            size = factor_text(max(self.rest, 1 / self.rest))
            words += f", then {back} {size} to layer {self.end}"
        return words


def course_of(profile: Profile, *, backward: bool = False) -> Course | None:
    """Follow a line; None where it has fewer than two finite values, or values below zero."""
    finite = np.isfinite(profile.values)
    layers = np.asarray(profile.layers)[finite]
    values = np.asarray(profile.values, dtype=np.float64)[finite]
    if backward:
        layers, values = layers[::-1], values[::-1]
    if len(values) < 2 or bool(np.any(values < 0)) or values[0] == 0:
        return None
    start, end = int(layers[0]), int(layers[-1])
    zeros = np.flatnonzero(values == 0)
    if len(zeros):
        return Course(start, end, end, 0.0, 1.0, None, int(layers[zeros[0]]))
    height = np.log(values) - math.log(values[0])
    # Where it stays at its farthest, the first layer that comes there counts.
    away = np.abs(height)
    far = int(np.argmax(away >= float(away.max()) - math.log1p(FLAT)))
    return Course(
        start=start,
        far=int(layers[far]),
        end=end,
        factor=math.exp(height[int(np.argmax(away))]),
        rest=math.exp(height[-1] - height[far]),
        most=_most(layers[: far + 1], height[: far + 1]),
        gone=None,
    )


def factor_text(factor: float) -> str:
    """Write a factor of at least 1 in two digits: `2.8-fold`, `300-fold`, `10^7-fold`."""
    if factor == math.inf or factor >= 1e5:
        power = "inf" if factor == math.inf else f"{round(math.log10(factor))}"
        return f"10^{power}-fold"
    return f"{float(f'{factor:.2g}'):g}-fold"


def axis_text(profiles: Iterable[Profile]) -> str:
    """Say what the places of lines count: `layer`, `hops`, or `layer or hops`."""
    return " or ".join(sorted({profile.over for profile in profiles}, reverse=True)) or "layer"


def shape_text(
    profile: Profile, *, scale: AxisScale, brief: bool = False, logarithm: bool = False
) -> str:
    """Say the law of a line, or where there is none how it rises, falls, dips or peaks.

    Of values that are logarithms no factor is said; a single value has no shape.
    """
    if len(profile) == 1:
        return ""
    growth = profile.growth
    if logarithm and (growth.law != "linear" or growth.jump is not None):
        return _change_of_logarithms(profile)
    if growth.law != "none":
        return growth.brief if brief else growth.text
    words = _words_without_law(profile, scale)
    lost = growth.text.partition("; ")[2]  # how many layers are not finite
    return words if brief else "; ".join(word for word in (words, lost) if word)


def change_over_depth(profile: Profile, *, scale: AxisScale) -> float:
    """Say how much a line changes, so that lines can be put in order.

    On a log scale it is the logarithm of the largest over the smallest value, else the range over
    the largest size: both are about 1 for a line that changes as much as it is large. What is
    small beside 1 on a linear scale, such as a cosine near zero, counts by its range alone. A value
    that is not finite, or a zero among others on a log scale, is more than any change.
    """
    values = np.asarray(profile.values, dtype=np.float64)
    if not bool(np.all(np.isfinite(values))):
        return math.inf
    largest = float(np.max(np.abs(values), initial=0.0))
    if largest == 0:
        return 0.0
    if scale == "log" and bool(np.all(values >= 0)):
        smallest = float(values.min())
        return math.inf if smallest == 0 else math.log(largest) - math.log(smallest)
    return float(np.ptp(values / largest)) * min(largest, 1.0)


def _most(layers: NDArray[np.int64], height: NDArray[np.float64]) -> tuple[int, int] | None:
    """Return the shortest stretch with at least half of the change; None if it is spread evenly."""
    steps = len(height) - 1
    for length in range(1, max(1, math.ceil(EVENLY * steps)) + 1):
        if length > steps or (length > 1 and length >= EVENLY * steps):
            break
        share = (height[length:] - height[:-length]) / height[-1]
        best = int(np.argmax(share))
        if share[best] >= 0.5:
            return int(layers[best]), int(layers[best + length])
    return None


def _words_without_law(profile: Profile, scale: AxisScale) -> str:
    finite = np.isfinite(profile.values)
    values, layers = profile.values[finite], np.asarray(profile.layers)[finite]
    if len(values) < 2:
        return ""
    largest = float(np.max(np.abs(values)))
    spread = float(np.ptp(values / largest)) if largest else 0.0
    if spread <= FLAT:
        return f"flat within {max(1, math.ceil(100 * spread))} %"
    positive = scale == "log" and bool(np.all(values > 0))
    height = np.log(values) if positive else values / largest
    low, high = int(np.argmin(height)), int(np.argmax(height))
    range_ = float(np.ptp(height))
    ends = sorted((float(height[0]), float(height[-1])))
    turns: dict[int, str] = {}
    if ends[0] - height[low] >= CLEAR * range_:
        turns[int(layers[low])] = "dips"
    if height[high] - ends[1] >= CLEAR * range_:
        turns[int(layers[high])] = "peaks"
    if turns:
        return ", ".join(f"{turns[layer]} at {profile.place(layer)}" for layer in sorted(turns))
    verb = "rises" if height[-1] > height[0] else "falls"
    if values[0] * values[-1] > 0:
        return f"{verb} ×{format_number(float(values[-1] / values[0]), digits=3)}"
    return f"{verb} by {format_number(float(abs(values[-1] - values[0])), digits=3)}"


def _change_of_logarithms(profile: Profile) -> str:
    """Say by how much logarithms rise or fall from the first finite one to the last."""
    finite = profile.values[np.isfinite(profile.values)]
    if len(finite) < 2:
        return ""
    change = float(finite[-1] - finite[0])
    verb = "rises" if change > 0 else "falls"
    return f"{verb} by {format_number(abs(change), digits=3)}" if change else "ends where it began"
