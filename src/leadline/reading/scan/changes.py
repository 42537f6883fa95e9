"""Which layers change over the checkpoints of a run: which quantity, since when, by how much.

A series x over n checkpoints is cut in two where that leaves the least absolute deviation:

    cut      k that minimises  sum_{i<k} |x_i - median(x_<k)| + sum_{i>=k} |x_i - median(x_>=k)|,
             with at least two checkpoints on either side
    change   median(x_>=k) - median(x_<k)
    noise    the larger of 1.4826 median |x_{i+1} - x_i| / sqrt(2) and the same of second
             differences, over sqrt(6)

x are logarithms where the quantity is drawn on a log scale. It is a change where it is at least
`LEAST`, and at least `SURE` times the noise or as steady as `STEADY`: one wild checkpoint moves no
median, and a slow drift is a change whose cut is in its middle. Of series of Gaussian numbers two
in a thousand are taken for a change at most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from leadline.reading.watch.heat import layer_series, table_of
from leadline.reading.watch.levels import levels_of, noise_of
from leadline.reading.watch.robust import NORMAL, steadiness

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from leadline.reading.scan.series import CheckpointSeries
    from leadline.reading.watch.heat import LayerSeries

__all__ = ["FEWEST", "LEAST", "SURE", "LayerChange", "cut_in_two", "find_changes"]

FEWEST = 4
"""With fewer checkpoints a change cannot be told from noise."""
EITHER_SIDE = 2
"""So many checkpoints at least stand before and after a cut."""
SURE = 5.0
"""A change is at least so many times the noise between neighbouring checkpoints."""
STEADY, FEWEST_STEADY = 0.9, 6
"""A slow drift: so much of Kendall's order, over so many checkpoints at least."""
LEAST = math.log(1.5)
"""The least change of a logarithm; of a quantity without one, as a share of its larger level."""


@dataclass(frozen=True, eq=False)
class LayerChange:
    """Layers in which a quantity went the same way: up, down, or beyond all numbers.

    `before` and `after` are medians over these layers, `others` is the factor of the layers that are
    not among them; NaN where there are none. `since` is the step of the first checkpoint after the
    cut, the median of that over the layers.
    """

    group: LayerSeries
    labels: tuple[str, ...]
    since: int
    before: float
    after: float
    others: float
    noise: float

    @property
    def factor(self) -> float:
        """How much it is multiplied by; NaN where the signs differ, or it is no number any more."""
        if not math.isfinite(self.after) or self.before * self.after <= 0:
            return math.nan
        return self.after / self.before

    @property
    def everywhere(self) -> bool:
        """Whether all layers are among them."""
        return len(self.labels) == len(self.group.series)

    @property
    def size(self) -> float:
        """How far it went, as a logarithm; infinite where it is no number any more, or turned."""
        return abs(math.log(self.factor)) if self.factor > 0 else math.inf

    @property
    def local(self) -> bool:
        """Whether it stands in half of the layers at most, so that it names a place."""
        return 2 * len(self.labels) <= len(self.group.series)


def find_changes(series: CheckpointSeries) -> list[LayerChange]:
    """Return the changes over the checkpoints of a run, the most telling first.

    Changes in few layers come before those in many. Of those that began together the first layer
    comes first, because what breaks there shows in the layers behind it.
    """
    changes: list[LayerChange] = []
    for group in layer_series(series.history):
        changes += _changes_of(group)
    largest: dict[tuple[bool, int], float] = {}
    for one in changes:
        event = one.local, one.since
        largest[event] = max(one.size, largest.get(event, 0.0))

    def order(one: LayerChange) -> tuple[bool, float, int, bool, int, float]:
        numbers = [int(label) for label in one.labels if label.isdigit()]
        outside = one.group.outside
        first = min(numbers, default=0) if one.local else 0
        return not one.local, -largest[one.local, one.since], one.since, outside, first, -one.size

    return sorted(changes, key=order)


def cut_in_two(levels: NDArray[np.float64]) -> tuple[int, float, float]:
    """Return where a series is cut, and the medians before and from there on."""
    best, result = math.inf, (0, math.nan, math.nan)
    for at in range(EITHER_SIDE, len(levels) - EITHER_SIDE + 1):
        before, after = float(np.median(levels[:at])), float(np.median(levels[at:]))
        rest = float(np.abs(levels[:at] - before).sum() + np.abs(levels[at:] - after).sum())
        if rest < best - 1e-12:
            best, result = rest, (at, before, after)
    return result


@dataclass(frozen=True)
class _Shift:
    """The change of one row."""

    row: int
    since: int
    before: float
    after: float
    noise: float
    size: float
    """Signed, in levels; infinite where it is no number any more."""
    steady: bool = False


def _changes_of(group: LayerSeries) -> list[LayerChange]:
    steps, values, read = table_of(group)
    logarithmic = group.quantity.scale == "log"
    levels = levels_of(values, logarithmic=logarithmic)
    shifts: list[_Shift] = []
    factors: dict[int, float] = {}
    for row in range(len(values)):
        known = read[row]
        if int(known.sum()) < FEWEST:
            continue
        shift = _shift(row, steps[known], values[row, known], levels[row, known])
        factors[row] = shift.after / shift.before if shift.before else math.nan
        if _is_change(shift, logarithmic=logarithmic):
            shifts.append(shift)
    ways = {"lost": math.inf, "up": 1.0, "down": -1.0}
    changes: list[LayerChange] = []
    for way in ways:
        members = [one for one in shifts if _way(one) == way]
        if members:
            rest = [factor for row, factor in factors.items() if row not in {m.row for m in members}]
            changes.append(_merged(group, members, rest))
    return changes


def _shift(
    row: int,
    steps: NDArray[np.int64],
    values: NDArray[np.float64],
    levels: NDArray[np.float64],
) -> _Shift:
    lost = ~np.isfinite(values)
    if lost.any():
        first = int(np.argmax(lost))
        before = float(np.median(values[:first])) if first else math.nan
        return _Shift(row, int(steps[first]), before, float(values[first]), 0.0, math.inf)
    finite = np.where(np.isfinite(levels), levels, -1e3)  # zero under a logarithm
    at, low, high = cut_in_two(finite)
    before, after = float(np.median(values[:at])), float(np.median(values[at:]))
    steady = len(finite) >= FEWEST_STEADY and abs(steadiness(finite)) >= STEADY
    return _Shift(row, int(steps[at]), before, after, _noise(finite), high - low, steady)


def _noise(levels: NDArray[np.float64]) -> float:
    """The noise between neighbours; second differences do not see a drift, first ones see its size."""
    curved = float(np.median(np.abs(np.diff(levels, 2))))
    return max(float(noise_of(levels[None])[0]), NORMAL * curved / math.sqrt(6))


def _is_change(shift: _Shift, *, logarithmic: bool) -> bool:
    size = 1.0 if logarithmic else max(abs(shift.before), abs(shift.after))
    sure = shift.steady or abs(shift.size) >= SURE * shift.noise
    return sure and abs(shift.size) >= LEAST * size and shift.size != 0


def _way(shift: _Shift) -> str:
    if math.isinf(shift.size):
        return "lost"
    return "up" if shift.size > 0 else "down"


def _merged(group: LayerSeries, shifts: Sequence[_Shift], rest: Sequence[float]) -> LayerChange:
    rest = [factor for factor in rest if math.isfinite(factor)]
    return LayerChange(
        group,
        tuple(group.labels[one.row] for one in shifts),
        since=sorted(one.since for one in shifts)[(len(shifts) - 1) // 2],
        before=float(np.median([one.before for one in shifts])),
        after=float(np.median([one.after for one in shifts])),
        others=float(np.median(rest)) if rest else math.nan,
        noise=max(one.noise for one in shifts),
    )
