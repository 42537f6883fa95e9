"""What is usual in a run, by medians: a few wild samples change neither level nor spread nor slope.

    level       median of the past
    spread      1.4826 median |x - level|, the standard deviation where the past is normal
    slope       median of (y_j - y_i) / (x_j - x_i) over all pairs (Theil 1950, Sen 1968)
    steadiness  share of rising pairs less share of falling pairs, from -1 to 1 (Kendall 1938)

Gauges change by factors, so they are compared by their logarithms. A run is judged against its own past:
`WINDOW` samples before the one in question, none before `LEAST_SAMPLES` samples and `LEAST_STEPS` updates
were made. Samples come every 1 to 100 updates: the number of samples makes medians sure, the number of
updates says how much of the training they are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leadline.reading.watch.history import Series
from leadline.record.rows.site import OUTSIDE, Site

__all__ = [
    "FLOOR",
    "LEAST_SAMPLES",
    "LEAST_STEPS",
    "NORMAL",
    "WINDOW",
    "Departure",
    "LayerPanel",
    "change",
    "is_early",
    "level_and_spread",
    "panel",
    "place_of",
    "round_to",
    "running_median",
    "slope",
    "spread",
    "steadiness",
]

Floats = NDArray[np.float64]
Numbers = Floats | NDArray[np.int64] | Sequence[float]

WINDOW = 20
"""So many samples are the past of the next one."""
LEAST_SAMPLES = 10
"""With fewer samples nothing is said: the median of fewer is not to be trusted."""
LEAST_STEPS = 50
"""In the first updates of a run everything changes by factors, and rightly."""
FLOOR = 0.15
"""The least spread of a logarithm: a gauge that changes by less than 15 % did not jump."""
NORMAL = 1.4826
"""Standard deviation over median absolute deviation of a normal distribution."""
TINY = 1e-30
"""Stands for zero under a logarithm."""


def spread(values: Floats) -> float:
    """Return the scaled median absolute deviation."""
    return NORMAL * float(np.median(np.abs(values - np.median(values))))


def level_and_spread(values: Floats) -> tuple[float, float]:
    """Return median and scaled median absolute deviation."""
    return float(np.median(values)), spread(values)


@functools.lru_cache(maxsize=64)
def _pairs(count: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The places of all pairs of so many points: an earlier and a later one."""
    earlier, later = np.triu_indices(count, 1)
    return earlier, later


def slope(x: Numbers, y: Numbers) -> float:
    """Return the median slope over all pairs of points."""
    xs, ys = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    first, second = _pairs(len(xs))
    distance = xs[second] - xs[first]
    apart = distance != 0
    if not apart.any():
        return 0.0
    return float(np.median((ys[second] - ys[first])[apart] / distance[apart]))


def steadiness(values: Numbers) -> float:
    """Return 1 where every later value is above every earlier one, -1 where it is below."""
    ys = np.asarray(values, dtype=float)
    first, second = _pairs(len(ys))
    if not len(first):
        return 0.0
    return float(np.mean(np.sign(ys[second] - ys[first])))


def running_median(values: Floats, count: int) -> Floats:
    """Return the median of every `count` values in a row, so that the result is shorter."""
    if len(values) < count:
        return np.empty(0)
    windows = np.lib.stride_tricks.sliding_window_view(values, count)
    return np.median(windows, axis=1)


def is_early(series: Series) -> bool:
    """Say whether a series is too short to judge."""
    return len(series) <= LEAST_SAMPLES or series.last_step < LEAST_STEPS


@dataclass(frozen=True)
class LayerPanel:
    """One quantity at several sites over the same last samples, as logarithms."""

    sites: tuple[Site, ...]
    steps: NDArray[np.int64]
    logs: Floats
    """[site, sample]"""

    @property
    def values(self) -> Floats:
        """[site, sample]"""
        return np.exp(self.logs)

    def rows(self, chosen: NDArray[np.bool_]) -> LayerPanel:
        """Return the panel of some of the sites."""
        kept = tuple(site for site, keep in zip(self.sites, chosen, strict=True) if keep)
        return LayerPanel(kept, self.steps, self.logs[chosen])


def panel(
    series: Sequence[Series], *, samples: int = WINDOW + 1, outside: bool = False
) -> LayerPanel | None:
    """Return the last samples of series that were read together; None where it is too early.

    Tensors that belong to no block are left out unless `outside`: rare symbols make the gauges of a table of
    embeddings jump. A series with a value that is not finite is left out.
    """
    wanted = [one for one in series if len(one) and (outside or one.site.stack != OUTSIDE)]
    if not wanted:
        return None
    last = max(one.last_step for one in wanted)
    wanted = [one for one in wanted if one.last_step == last]
    count = min(samples, max(len(one) for one in wanted))
    tails = [one.tail(samples) for one in wanted]
    steps = max((one.steps for one in tails), key=len)
    rows = [
        (one.site, np.log(np.maximum(one.values, TINY)))
        for one in tails
        if len(one) == count and np.isfinite(one.values).all() and (one.steps == steps).all()
    ]
    if not rows or count <= LEAST_SAMPLES or last < LEAST_STEPS:
        return None
    return LayerPanel(tuple(site for site, _ in rows), steps, np.array([logs for _, logs in rows]))


@dataclass(frozen=True)
class Departure:
    """The last sample of every site beside its own past."""

    factors: Floats
    """[site] last value over the median of the past."""
    deviations: Floats
    """[site] the same as a logarithm, over the spread of the past."""
    usual: Floats
    """[site] the median of the past."""
    since: int
    """The first step of the stretch in which the median of the sites is up."""
    before: int
    """The last step at which things were as before."""

    @property
    def factor(self) -> float:
        """The median over the sites."""
        return float(np.median(self.factors))

    @property
    def deviation(self) -> float:
        """The median over the sites."""
        return float(np.median(self.deviations))


def change(measured: LayerPanel, *, floor: float = FLOOR) -> Departure:
    """Compare the last sample of a panel with the samples before it."""
    past, last = measured.logs[:, :-1], measured.logs[:, -1]
    centre = np.median(past, axis=1)
    around = NORMAL * np.median(np.abs(past - centre[:, None]), axis=1)
    # Everything that is more than half of the way up belongs to the same event.
    away = np.median(measured.logs - centre[:, None], axis=0)
    begin = len(away) - 1
    while begin > 0 and away[begin - 1] > away[-1] / 2 > 0:
        begin -= 1
    return Departure(
        factors=np.exp(last - centre),
        deviations=(last - centre) / np.maximum(around, floor),
        usual=np.exp(centre),
        since=int(measured.steps[begin]),
        before=int(measured.steps[max(begin - 1, 0)]),
    )


def place_of(sites: Iterable[Site], stack: str) -> tuple[int, ...]:
    """Return the layers of the sites of one stack: a warning speaks of one."""
    return tuple(sorted({site.layer for site in sites if site.stack == stack}))


def round_to(value: float, digits: int = 2) -> float:
    """Return a number with so many digits, for evidence that people read."""
    if value == 0 or not math.isfinite(value):
        return value
    return round(value, digits - 1 - math.floor(math.log10(abs(value))))
