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
from numpy.typing import NDArray

from leadline.reading.watch.heat import layer_series, table_of
from leadline.reading.watch.levels import levels_of, noise_of
from leadline.reading.watch.robust import NORMAL, steadiness

if TYPE_CHECKING:
    from leadline.reading.scan.series import CheckpointSeries
    from leadline.reading.watch.heat import LayerSeries

Floats = NDArray[np.float64]

__all__ = ["FEWEST", "LEAST", "MINOR", "SURE", "LayerChange", "cut_in_two", "find_changes"]

FEWEST = 4
"""With fewer checkpoints a change cannot be told from noise."""
EITHER_SIDE = 2
"""So many checkpoints at least stand before and after a cut."""
SURE = 5.0
"""A change is at least so many times the noise between neighbouring checkpoints."""
STEADY, FEWEST_STEADY = 0.9, 6
"""A slow drift: so much of Kendall's order, over so many checkpoints at least."""
CUTS = 100
"""So many cuts are tried at most, evenly spaced."""
NOTHING = -1e3
"""Stands for the logarithm of zero."""
MINOR = 0.5
"""Layers that go less than this share of the way of the farthest one, in levels, are a change of
their own: a jump of one layer would drown in the drift of the others."""
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
        """How far it went, as a logarithm; infinite where it is zero or no number any more.

        What changes its sign has no logarithm, and a mean near zero does so without any reason:
        its size is the change as a share of the larger level, which is at most 2.
        """
        if self.factor > 0:
            return abs(math.log(self.factor))
        if math.isfinite(self.after) and self.before * self.after < 0:
            return abs(self.after - self.before) / max(abs(self.before), abs(self.after))
        return math.inf

    @property
    def local(self) -> bool:
        """Whether it stands in half of the layers at most, so that it names a place.

        Where the other layers go the same way and farther, it names none.
        """
        few = 2 * len(self.labels) <= len(self.group.series)
        return few and not (self.others > self.factor > 1 or 0 < self.others < self.factor < 1)


def find_changes(series: CheckpointSeries) -> list[LayerChange]:
    """Return the changes over the checkpoints of a run, the most telling first.

    Changes in few layers come before those in many. Of those that began together the first layer
    comes first, because what breaks there shows in the layers behind it; what is `MINOR` beside the
    largest of them comes after, since something always drifts while something else breaks.
    """
    changes: list[LayerChange] = []
    for group in layer_series(series.history):
        changes += _changes_of(group)
    largest: dict[tuple[bool, int], float] = {}
    for one in changes:
        event = one.local, one.since
        largest[event] = max(one.size, largest.get(event, 0.0))

    def order(one: LayerChange) -> tuple[bool, float, int, bool, bool, int, float]:
        numbers = [int(label) for label in one.labels if label.isdigit()]
        outside = one.group.outside
        first = min(numbers, default=0) if one.local else 0
        most = largest[one.local, one.since]
        minor = one.size < MINOR * most
        return not one.local, -most, one.since, minor, outside, first, -one.size

    return sorted(changes, key=order)


def cut_in_two(levels: NDArray[np.float64]) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Return where every row is cut, and its medians before and from there on."""
    rows, count = levels.shape
    span = count - 2 * EITHER_SIDE
    parts = min(CUTS - 1, span)
    least = np.full(rows, np.inf)
    places = np.zeros(rows, dtype=np.int64)
    before, after = np.full(rows, np.nan), np.full(rows, np.nan)
    for part in range(parts + 1):
        at = EITHER_SIDE + round(span * part / max(parts, 1))
        early, late = np.median(levels[:, :at], axis=1), np.median(levels[:, at:], axis=1)
        rest = np.abs(levels[:, :at] - early[:, None]).sum(axis=1)
        rest += np.abs(levels[:, at:] - late[:, None]).sum(axis=1)
        better = rest < least - 1e-12  # of cuts that are as good the first one counts
        least, places = np.where(better, rest, least), np.where(better, at, places)
        before, after = np.where(better, early, before), np.where(better, late, after)
    return places, before, after


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
    shifts = _shifts(steps, values, read, logarithmic=logarithmic)
    found = [one for one in shifts if _is_change(one, logarithmic=logarithmic)]
    changes: list[LayerChange] = []
    for way in ("lost", "up", "down"):
        left: list[_Shift] = [one for one in found if _way(one) == way]
        while left:
            least = MINOR * max(abs(one.size) for one in left)
            members = [one for one in left if abs(one.size) >= least]
            left = [one for one in left if abs(one.size) < least]
            rows = {one.row for one in members}
            rest = [one.after / one.before for one in shifts if one.row not in rows and one.before]
            changes.append(_merged(group, members, rest))
    return changes


def _shifts(
    steps: NDArray[np.int64], values: Floats, read: NDArray[np.bool_], *, logarithmic: bool
) -> list[_Shift]:
    """The shift of every row that was read often enough; rows read at the same steps at once."""
    known = read & np.isfinite(values)
    batches: dict[bytes, list[int]] = {}
    for row in range(len(values)):
        batches.setdefault(known[row].tobytes(), []).append(row)
    shifts: list[_Shift] = []
    for rows in batches.values():
        usable = known[rows[0]]
        for row in rows:
            lost = np.flatnonzero(read[row] & ~np.isfinite(values[row]))
            if len(lost) and usable.any() and lost[-1] > np.flatnonzero(usable)[-1]:
                shifts.append(_loss(row, steps, values[row], usable))
        if int(usable.sum()) >= FEWEST:
            table = values[np.ix_(np.array(rows), np.flatnonzero(usable))]
            gone = {one.row for one in shifts}
            shifts += [
                one
                for one in _batch(rows, steps[usable], table, logarithmic=logarithmic)
                if one.row not in gone
            ]
    return shifts


def _loss(row: int, steps: NDArray[np.int64], values: Floats, usable: NDArray[np.bool_]) -> _Shift:
    """The shift of a row whose last values are no numbers any more."""
    first = int(np.flatnonzero(usable)[-1]) + 1
    before = float(np.median(values[usable]))
    return _Shift(row, int(steps[first]), before, float(values[-1]), 0.0, math.inf)


def _batch(
    rows: Sequence[int], steps: NDArray[np.int64], values: Floats, *, logarithmic: bool
) -> list[_Shift]:
    """The shifts of rows that were read at the same steps."""
    levels = np.maximum(levels_of(values, logarithmic=logarithmic), NOTHING)
    places, before, after = cut_in_two(levels)
    # Second differences do not see a drift, first ones see its size.
    curved = np.median(np.abs(np.diff(levels, 2, axis=1)), axis=1) / math.sqrt(6)
    noises = np.maximum(noise_of(levels), NORMAL * curved)
    enough = len(steps) >= FEWEST_STEADY
    return [
        _Shift(
            row,
            since=int(steps[cut]),
            before=float(np.median(values[at, :cut])),
            after=float(np.median(values[at, cut:])),
            noise=float(noises[at]),
            size=float(after[at] - before[at]),
            steady=enough and abs(steadiness(levels[at])) >= STEADY,
        )
        for at, (row, cut) in enumerate(zip(rows, places.tolist(), strict=True))
    ]


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
