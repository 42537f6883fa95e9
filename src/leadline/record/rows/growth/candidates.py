"""What may be said of a series: every law, and every law beside a jump, that fits well enough."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from leadline.record.rows.growth.stretch import (
    Stretch,
    drift_stretch,
    fit_line,
    flat_stretch,
    lone_stretch,
    power_stretch,
    saturating_stretch,
    trends,
)
from leadline.record.rows.growth.words import half_range

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

__all__ = ["FEWEST", "TIE", "Candidate", "DepthSeries", "candidates", "is_flat", "r2_of_the_ends"]

# The meaning of these thresholds and what they were set on: see the package.
FEWEST = 4
FLAT_RANGE = 0.05
FLAT_SPREAD = 0.20
DRIFT_R2 = 0.5
# Of noise around a constant a line explains half the variance in 29 % of series of 4 values, in 5 %
# of 8. Beside a jump, whose place is chosen too, only the longer ones count.
DRIFT_BESIDE_A_JUMP = 8
LEAST_R2 = 0.9
# Kass & Raftery 1995: below 2 a difference is "not worth more than a bare mention", from 6 on the
# evidence is strong.
TIE = 2.0
CLEAR = 6.0
# The step that leaves the spread of a flat side: 1 / 0.8.
LEAST_JUMP = math.log(1.25)
JUMP_OVER_STEPS = 5.0
# A jump is one of the largest steps: where three larger ones stand beside it there is no law.
MOST_PLACES = 3
# Residuals below this are rounding, so laws that both fit to rounding differ by their constants.
ROUNDING = 1e-9
# A limit is said with three digits: a value that differs in none of them has not passed it.
PASSED = 1e-3


@dataclass(frozen=True, slots=True)
class DepthSeries:
    """Finite values over layers, and what is fitted: the logarithm of the size for one sign.

    `level` is the values over `scale`, the largest size: this keeps squares of very large and very
    small values in range.
    """

    depth: Vector
    level: Vector
    observed: Vector
    logs: bool
    scale: float

    @classmethod
    def of(cls, depth: Vector, values: Vector) -> DepthSeries:
        """Scale values that are not all zero."""
        scale = float(np.max(np.abs(values)))
        level = values / scale
        # The division may bring the smallest numbers to zero, and zero has no logarithm.
        logs = bool(np.all(level > 0) or np.all(level < 0))
        return cls(depth, level, np.log(np.abs(level)) if logs else level, logs, scale)

    def __len__(self) -> int:
        return len(self.level)

    @property
    def sign(self) -> float:
        """The sign of the values, 1 where it changes."""
        return math.copysign(1.0, float(self.level[0])) if self.logs else 1.0

    def rate(self, side: Stretch) -> float:
        """The rate of a law in the unit of the values."""
        match side.law:
            case "linear":
                return side.rate * self.scale * self.sign
            case "root":
                return side.rate * self.scale * self.scale
            case "inverse root":
                return side.rate / self.scale / self.scale
            case "inverse":
                return side.rate / self.scale * self.sign
            case _:
                return side.rate

    def r2(self, side: Stretch) -> float:
        """How much of the variance of a side its law explains."""
        return _r2(self.observed[side.start : side.stop], side.fitted)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One law over all layers, or the two sides of a jump, with its score: the least is best."""

    sides: tuple[Stretch, ...]
    score: float

    @property
    def parameters(self) -> int:
        """How many free numbers it has."""
        return _parameters(self.sides)

    @property
    def main(self) -> Stretch:
        """The side that has a trend, else the longer one."""
        return max(self.sides, key=lambda side: (_is_trend(side), side.law == "flat", len(side)))

    @property
    def place(self) -> int | None:
        """The number of the first value behind the jump."""
        return self.sides[1].start if len(self.sides) == 2 else None


def is_flat(level: Vector) -> bool:
    """Whether values hardly differ, so that no law of their differences is of interest."""
    return 2.0 * half_range(level) <= FLAT_RANGE


def candidates(series: DepthSeries) -> list[Candidate]:
    """Fit all laws and keep those that may be said; a drift is said only where no law may be."""
    return _keep(series, _arrangements(series)) or _keep(series, _arrangements(series, drift=True))


def _keep(series: DepthSeries, arrangements: Iterable[tuple[Stretch, ...]]) -> list[Candidate]:
    kept: list[Candidate] = []
    for sides in arrangements:
        rss = sum(side.rss for side in sides)
        score = _criterion(rss, len(series), _parameters(sides)) + _handicap(series, sides)
        if math.isfinite(score) and _may_be_said(series, sides):
            kept.append(Candidate(sides, score))
    return kept


def r2_of_the_ends(series: DepthSeries, side: Stretch) -> float:
    """R² of a side, of the side without its first and without its last value: the least."""
    observed = series.observed[side.start : side.stop]
    return min(
        _r2(observed[part], side.fitted[part])
        for part in (slice(None), slice(1, None), slice(None, -1))
    )


def _arrangements(series: DepthSeries, *, drift: bool = False) -> Iterator[tuple[Stretch, ...]]:
    for law in _laws(series, 0, len(series), drift=drift):
        yield (law,)
    saturating = saturating_stretch(series.depth, series.observed, 0, len(series), logs=series.logs)
    if saturating is not None:
        yield (saturating,)
    for place in _places(series):
        behind = _laws(series, place, len(series), lone=1, drift=drift)
        for left in _laws(series, 0, place, lone=2, drift=drift):
            for right in behind:
                trend = _is_trend(left), _is_trend(right)
                lone = left.law == right.law == "none"
                if not (all(trend) or lone):
                    yield (left, right)


def _laws(
    series: DepthSeries, start: int, stop: int, *, lone: int = 0, drift: bool = False
) -> list[Stretch]:
    """The laws of up to two constants of a side; up to `lone` values may stand on their own."""
    laws: list[Stretch] = []
    if stop - start <= lone:
        laws.append(lone_stretch(series.observed, start, stop))
    if stop - start >= 2:
        laws.append(flat_stretch(series.observed, start, stop))
    if stop - start >= FEWEST:
        laws += trends(series.depth, series.observed, start, stop, logs=series.logs)
        if series.logs and series.depth[start] == 1:
            laws.append(power_stretch(series.depth, series.observed, start, stop))
        if drift and series.logs:
            laws.append(drift_stretch(series.depth, series.observed, start, stop))
    return laws


def _places(series: DepthSeries) -> list[int]:
    """Where the series may jump: the first value behind a step that stands out."""
    steps = np.abs(np.diff(series.observed))
    order = np.argsort(-steps, kind="stable")[:MOST_PLACES]
    least = LEAST_JUMP if series.logs else 0.0
    return [
        int(at) + 1
        for at in order
        if steps[at] > least and steps[at] >= JUMP_OVER_STEPS * np.median(np.delete(steps, at))
    ]


def _parameters(sides: tuple[Stretch, ...]) -> int:
    return sum(side.parameters for side in sides) + len(sides) - 1


def _criterion(rss: float, count: int, parameters: int) -> float:
    freedom = count - parameters - 2
    if freedom < 0:
        return math.inf
    penalty = parameters * count * math.log(count) / max(freedom, 0.5)
    return count * math.log(rss / count + ROUNDING**2) + penalty


def _handicap(series: DepthSeries, sides: tuple[Stretch, ...]) -> float:
    beside_a_jump = len(sides) == 2 and any(map(_is_trend, sides))
    handicap = CLEAR if beside_a_jump or sides[0].law == "saturating" else 0.0
    if any(side.law == "power" for side in sides):
        handicap += len(series) * math.log(4.0)  # half the miss is a quarter of RSS
    return handicap


def _may_be_said(series: DepthSeries, sides: tuple[Stretch, ...]) -> bool:
    step = math.nan
    if len(sides) == 2:
        place = sides[1].start
        step = abs(float(series.observed[place] - series.observed[place - 1]))
        miss = math.sqrt(sum(side.rss for side in sides) / len(series))
        # Two values on their own are part of the way only if both steps go there.
        way = np.diff(series.observed[: place + 1]) if sides[0].law == "none" else np.zeros(1)
        if step < JUMP_OVER_STEPS * miss or float(way.min() * way.max()) < 0:
            return False
    return all(_side_may_be_said(series, side, step) for side in sides)


def _side_may_be_said(series: DepthSeries, side: Stretch, step: float) -> bool:
    """Whether a law fits its side; `step` is the jump beside it, NaN if there is none."""
    level = series.level[side.start : side.stop]
    if side.law == "none":
        return True
    if side.law == "flat":
        # Around zero a spread has no meaning but beside the jump.
        spread = half_range(level) if series.logs else float(np.ptp(level)) / 2 / step
        return spread <= FLAT_SPREAD and not _drifts(series, side)
    if is_flat(level):
        return False
    observed = series.observed[side.start : side.stop]
    change, fitted = float(observed[-1] - observed[0]), float(side.fitted[-1] - side.fitted[0])
    if not (change * fitted > 0 and 0.5 <= fitted / change <= 2.0):
        return False
    if side.law == "undecided":
        return half_range(level) <= FLAT_SPREAD and _drifts(series, side)
    if side.law == "saturating" and _has_passed_its_limit(series, side):
        return False
    rate = series.rate(side)
    return rate != 0 and math.isfinite(rate) and r2_of_the_ends(series, side) >= LEAST_R2


def _has_passed_its_limit(series: DepthSeries, side: Stretch) -> bool:
    """Whether the last value lies beyond the limit, and not by the chance of noise around it.

    Either it is farther away than the other values scatter (it does not count for that scatter,
    which it would widen), or all of the last three steps led there: noise does this in 1 of 24.
    """
    limit = math.log(side.offset) if series.logs else side.offset
    onward = math.copysign(1.0, float(side.fitted[-1] - side.fitted[0]))
    beyond = onward * (series.observed[side.start : side.stop] - limit)
    others = (series.observed[side.start : side.stop] - side.fitted)[:-1]
    scatter = math.sqrt(float(others @ others) / (len(side) - side.parameters - 1))
    moves_on = bool(np.all(np.diff(beyond[-4:]) > 0))
    return float(beyond[-1]) > (PASSED if moves_on else max(scatter, PASSED))


def _drifts(series: DepthSeries, side: Stretch) -> bool:
    """Whether a straight line explains so much that a side is not flat, however little it changes.

    Around zero a flat side is judged by its spread beside the jump, so there is no drift.
    """
    part = slice(side.start, side.stop)
    fewest = FEWEST if len(side) == len(series) else DRIFT_BESIDE_A_JUMP
    if not series.logs or len(side) < fewest or is_flat(series.level[part]):
        return False
    scales = series.observed[part], series.level[part]
    return max(_r2(scale, fit_line(series.depth[part], scale)[1]) for scale in scales) >= DRIFT_R2


def _is_trend(side: Stretch) -> bool:
    return side.law not in ("none", "flat")


def _r2(observed: Vector, fitted: Vector) -> float:
    total = float(np.sum((observed - observed.mean()) ** 2))
    if total == 0:
        return 0.0
    return max(0.0, 1.0 - float(np.sum((observed - fitted) ** 2)) / total)
