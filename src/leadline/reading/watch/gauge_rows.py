"""Every quantity of a run in a row: what it is now, what it was, and which layer departs most.

The past of a series is all of its samples but the last tenth. `departure` says how far the last
sample is from the median of the past, in units of its spread: half the width from its 10th to its
90th percentile, over 1.28, as a standard deviation is for Gaussian noise. A slow drift through the
whole run is part of that spread, so it departs by one or two, and what comes apart by ten and more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from leadline.reading.watch.heat import table_of
from leadline.reading.watch.levels import levels_of, row_medians
from leadline.record.rows.finding import SEVERITIES
from leadline.record.run.curve import is_loss

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from leadline.reading.watch.heat import LayerSeries
    from leadline.reading.watch.history import History, Series
    from leadline.record import Finding, Quantity

__all__ = ["GaugeRow", "LayerNow", "gauge_of", "gauge_rows", "most_telling", "warned"]

RECENT = 0.1
"""The share of the samples that is not past."""
LEAST_PAST = 4
"""With fewer samples behind it a series has no past to depart from."""
FLOOR = 0.05
"""The least spread: a change of five per cent of the level is nothing to speak of."""


@dataclass(frozen=True, slots=True)
class LayerNow:
    """A row of a group as it is now: its name, its value, and how far that is from its past."""

    label: str
    value: float
    past: float
    departure: float


@dataclass(frozen=True, eq=False)
class GaugeRow:
    """A quantity of the run, or the median over all layers of one of the model.

    `past` is the median of its past, between `low` and `high` in eight of ten samples; NaN where
    it has none. `worst` is the layer that has moved farthest from its own past, None for the run.
    """

    label: str
    quantity: Quantity
    now: float
    past: float
    low: float
    high: float
    departure: float
    curve: NDArray[np.float64]
    warned: bool
    group: LayerSeries | None = None
    worst: LayerNow | None = None
    most: float = 0.0
    """How far the layer is from its past that departs most, in units of its spread."""

    @property
    def telling(self) -> float:
        """How far it departs from its past, or one of its layers does."""
        return max(self.departure, self.most)


def gauge_rows(
    history: History, groups: Sequence[LayerSeries], findings: Sequence[Finding]
) -> list[GaugeRow]:
    """Return a row per quantity of the run and per group of layers, the most telling first.

    What a warning speaks of comes before all others. Losses are left out: they have their curve.
    """
    rows = [gauge_of(group, warned=warned(group, findings) is not None) for group in groups]
    for name, quantity in history.quantities.items():
        series = history.of_run(name)
        if series is not None and not is_loss(name):
            about = any(finding.quantity == name for finding in findings)
            rows.append(_of_run(series, quantity, warned=about))
    return sorted(rows, key=lambda row: (not row.warned, -row.telling))


def most_telling(groups: Sequence[LayerSeries], findings: Sequence[Finding]) -> list[LayerSeries]:
    """Return the groups in an order: those of warnings, the worst first, then what departs most.

    Tensors outside of the blocks come last, unless a warning speaks of them.
    """

    def order(group: LayerSeries) -> tuple[int, bool, float]:
        finding = warned(group, findings)
        place = len(SEVERITIES) if finding is None else SEVERITIES.index(finding.severity)
        return place, group.outside, -gauge_of(group).telling

    return sorted(groups, key=order)


def warned(group: LayerSeries, findings: Sequence[Finding]) -> Finding | None:
    """Return the worst finding that speaks of a group, None where there is none."""
    for finding in findings:
        if finding.quantity != group.quantity.name:
            continue
        if finding.stack not in (None, group.stack):
            continue
        if finding.sublayer in (None, group.point) or group.outside:
            return finding
    return None


def gauge_of(group: LayerSeries, *, warned: bool = False) -> GaugeRow:
    """Return the row of a group: the median over its layers, and the one that departs most."""
    _, values, read = table_of(group)
    logarithmic = group.quantity.scale == "log"
    levels = levels_of(values, logarithmic=logarithmic)
    curve = row_medians(levels.T, read.T)
    lost = (read & ~np.isfinite(values)).all(axis=0)
    curve = np.where(lost, np.nan, np.exp(curve) if logarithmic else curve)
    if logarithmic:  # of a logarithm of zero there is no median
        curve = np.where(read.any(axis=0) & ~(read & (values > 0)).any(axis=0) & ~lost, 0.0, curve)
    each = [
        _standing(label, values[row, read[row]], logarithmic=logarithmic)
        for row, label in enumerate(group.labels)
    ]
    worst = max((one for one, _ in each), key=lambda one: _moved(one, logarithmic=logarithmic))
    most = max(one.departure for one, _ in each)
    return _row(
        str(group.address), group.quantity, curve, warned, group=group, worst=worst, most=most
    )


def _moved(one: LayerNow, *, logarithmic: bool) -> float:
    """How far a layer is from its past, on the scale of the quantity: its noise says nothing here."""
    if not math.isfinite(one.value):
        return math.inf
    if math.isnan(one.past):
        return -1.0
    if not logarithmic:
        return abs(one.value - one.past)
    if one.past <= 0 or one.value <= 0:
        return math.inf if one.past != one.value else 0.0
    return abs(math.log(one.value / one.past))


def _of_run(series: Series, quantity: Quantity, *, warned: bool) -> GaugeRow:
    return _row(quantity.name, quantity, series.values, warned)


def _row(
    label: str,
    quantity: Quantity,
    curve: NDArray[np.float64],
    about: bool,
    *,
    group: LayerSeries | None = None,
    worst: LayerNow | None = None,
    most: float = 0.0,
) -> GaugeRow:
    now, (low, high) = _standing(label, curve, logarithmic=quantity.scale == "log")
    return GaugeRow(
        label,
        quantity,
        now.value,
        now.past,
        low,
        high,
        now.departure,
        curve,
        about,
        group,
        worst,
        most,
    )


def _standing(
    label: str, values: NDArray[np.float64], *, logarithmic: bool
) -> tuple[LayerNow, tuple[float, float]]:
    """Compare the last value of a series with its past, and return the usual range of that."""
    last = float(values[-1])
    recent = max(1, round(RECENT * len(values)))
    past = levels_of(values[: len(values) - recent], logarithmic=logarithmic)
    past = past[np.isfinite(past)]
    if len(past) < LEAST_PAST:
        departure = 0.0 if math.isfinite(last) else math.inf
        return LayerNow(label, last, math.nan, departure), (math.nan, math.nan)
    low, middle, high = (float(one) for one in np.quantile(past, (0.1, 0.5, 0.9)))
    size = 1.0 if logarithmic else max(abs(middle), 1e-12)
    spread = max((high - low) / 2.56, FLOOR * size)
    level = float(levels_of(np.array([last]), logarithmic=logarithmic)[0])
    departure = abs(level - middle) / spread if math.isfinite(level) else math.inf
    if logarithmic:
        low, middle, high = math.exp(low), math.exp(middle), math.exp(high)
    return LayerNow(label, last, middle, departure), (low, high)
