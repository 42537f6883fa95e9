"""The laws of one stretch of layers, each fitted by least squares.

A series of one sign is fitted on log |y|, so that an error of one percent counts the same in every
layer and all laws compete on one scale. Five laws are straight lines of some power of the size,
|y|^(1/p) = a + b l, and share one fit; their offset a makes them defined at layer 0:

    linear         p =  1      y  = a + b l
    root           p =  1/2    y² = a + b l
    inverse root   p = -1/2    1/y² = a + b l
    inverse        p = -1      1/y  = a + b l
    saturating     y = a + b c^l, 0 < c < 1: p = 1 with c^l in the place of l

Flat (y = a), exponential (y = a b^l) and power (y = a l^b, for l >= 1) are plain averages and
straight lines of the logarithm. A series that changes sign or touches zero has no logarithm: flat,
linear and saturating are fitted to y itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

__all__ = [
    "LawName",
    "Stretch",
    "drift_stretch",
    "fit_line",
    "flat_stretch",
    "lone_stretch",
    "power_stretch",
    "saturating_stretch",
    "trends",
]

LawName = Literal[
    "flat",
    "linear",
    "root",
    "inverse root",
    "inverse",
    "exponential",
    "power",
    "saturating",
    "jump",
    "undecided",
    "none",
]

_POWERS: dict[LawName, float] = {"linear": 1.0, "root": 0.5, "inverse root": -0.5, "inverse": -1.0}
# exp(-230) is 1e-100: no straight line runs over so many orders of magnitude, and the weights
# 1 / level² would overflow not far beyond.
_LOWEST_LOG = -230.0
# An approach to a limit is seen when at least three half-lives lie in the stretch. One of less than
# a layer is a jump.
_HALF_LIVES = 3.0
_SHORTEST_HALF_LIFE = 1.0


@dataclass(frozen=True, slots=True)
class Stretch:
    """A law over consecutive layers: the fit, what it leaves, and its constants.

    `start` and `stop` count the values of the series. `fitted` and `rss` are on the scale of the
    fit. `offset` is a / b of the four laws with a power, the limit a of a saturating one.
    """

    law: LawName
    start: int
    stop: int
    fitted: Vector
    rss: float
    parameters: int
    rate: float = 0.0
    offset: float = math.nan

    def __len__(self) -> int:
        return self.stop - self.start


def lone_stretch(observed: Vector, start: int, stop: int) -> Stretch:
    """Take every value for a constant of its own."""
    return Stretch("none", start, stop, observed[start:stop], 0.0, stop - start)


def flat_stretch(observed: Vector, start: int, stop: int) -> Stretch:
    """Fit a constant."""
    part = observed[start:stop]
    fitted = np.full_like(part, part.mean())
    return Stretch("flat", start, stop, fitted, _rss(part, fitted), 1)


def drift_stretch(depth: Vector, observed: Vector, start: int, stop: int) -> Stretch:
    """Fit a straight line to the logarithm that stands for a change of no known law."""
    part = observed[start:stop]
    slope, fitted = fit_line(depth[start:stop], part)
    return Stretch("undecided", start, stop, fitted, _rss(part, fitted), 2, slope)


def trends(depth: Vector, observed: Vector, start: int, stop: int, *, logs: bool) -> list[Stretch]:
    """Fit the laws of two parameters that need no layer to be left out."""
    x, part = depth[start:stop], observed[start:stop]
    slope, fitted = fit_line(x, part)
    if not logs:
        offset = float(fitted[0]) / slope - x[0] if slope else math.nan
        return [Stretch("linear", start, stop, fitted, _rss(part, fitted), 2, slope, offset)]
    growth = Stretch(
        "exponential", start, stop, fitted, _rss(part, fitted), 2, math.exp(min(slope, 700.0))
    )
    stretches = [growth]
    for law, power in _POWERS.items():
        straight = _straight_in_logarithm(x, part / power)
        if straight is None:
            continue
        a, b, logarithm = straight
        # 1 / (a - b l) would grow without bound at a finite depth: no theory knows it.
        if b == 0 or not math.isfinite(b) or (power < 0 and b < 0):
            continue
        fitted = logarithm * power
        stretches.append(Stretch(law, start, stop, fitted, _rss(part, fitted), 2, b, a / b))
    return stretches


def power_stretch(depth: Vector, observed: Vector, start: int, stop: int) -> Stretch:
    """Fit a power of the layer, which must be at least 1."""
    part = observed[start:stop]
    exponent, fitted = fit_line(np.log(depth[start:stop]), part)
    return Stretch("power", start, stop, fitted, _rss(part, fitted), 2, exponent)


def saturating_stretch(
    depth: Vector, observed: Vector, start: int, stop: int, *, logs: bool
) -> Stretch | None:
    """Fit the approach to a limit; `rate` is the half-life in layers.

    The half-life is found by least squares of y / fit, which is faster than that of its logarithm
    and agrees with it to second order in the residuals; a and b follow as those of a line do.
    """
    x, part = depth[start:stop] - depth[start], observed[start:stop]
    longest = float(x[-1]) / _HALF_LIVES
    if longest <= _SHORTEST_HALF_LIFE or (logs and float(np.ptp(part)) > -_LOWEST_LOG):
        return None
    level = np.exp(part - part.max()) if logs else part
    weight = 1.0 / level**2 if logs else np.ones_like(part)

    def miss(half_life: float) -> float:
        decay = np.exp2(-x / half_life)
        slope, middle, pivot = _weighted_line(decay, level, weight)
        return float(weight @ (level - middle - slope * (decay - pivot)) ** 2)

    grid = [float(one) for one in np.geomspace(_SHORTEST_HALF_LIFE, longest, 12)]
    best = int(np.argmin([miss(one) for one in grid]))
    half_life = _least(miss, grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    if not 1.01 * _SHORTEST_HALF_LIFE < half_life < 0.99 * longest:
        return None  # at an end of the range, so it is not determined
    decay = np.exp2(-x / half_life)
    if logs:
        straight = _straight_in_logarithm(decay, part)
        if straight is None or straight[0] <= 0:
            return None
        limit, _, fitted = straight
    else:
        slope, fitted = fit_line(decay, part)
        limit = float(fitted[0] - slope)
    return Stretch("saturating", start, stop, fitted, _rss(part, fitted), 3, half_life, limit)


def _least(miss: Callable[[float], float], low: float, high: float) -> float:
    """Golden section: the place of the smallest value between two ends."""
    ratio = (math.sqrt(5.0) - 1.0) / 2.0
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = miss(left), miss(right)
    for _ in range(40):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = miss(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = miss(right)
        if high - low <= 1e-5 * high:
            break
    return left if at_left <= at_right else right


def _straight_in_logarithm(x: Vector, logarithm: Vector) -> tuple[float, float, Vector] | None:
    """Least squares of u = log(a + b x), by Gauss-Newton from the relative least squares.

    A step that would make a + b x negative somewhere, or not lower the residual, is halved.
    Returns a, b and the fitted u.
    """
    top = float(logarithm.max())
    u = logarithm - top
    if float(u.min()) < _LOWEST_LOG:
        return None
    level = np.exp(u)
    slope, middle, pivot = _weighted_line(x, level, 1.0 / level**2)
    line = middle + slope * (x - pivot)
    if float(line.min()) <= 0:
        slope, line = 0.0, np.full_like(x, math.exp(float(u.mean())))
    rss = _log_rss(line, u)
    for _ in range(30):
        # With r = u - log(line) the step minimises the sum of (r - step / line)².
        turn, middle, pivot = _weighted_line(x, (u - np.log(line)) * line, 1.0 / line**2)
        step = middle + turn * (x - pivot)
        size = 1.0
        while size > 1e-3 and not _log_rss(line + size * step, u) < rss:
            size /= 2
        if size <= 1e-3:
            break
        slope, line = slope + size * turn, line + size * step
        before, rss = rss, _log_rss(line, u)
        if before - rss <= 1e-12 * before:
            break
    with np.errstate(over="ignore"):
        unit = float(np.exp(top))
    a = float(line[0] - slope * x[0])
    return a * unit, slope * unit, np.log(line) + top


def fit_line(x: Vector, y: Vector) -> tuple[float, Vector]:
    """Least squares of y = a + b x: b, and a + b x."""
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    return slope, y.mean() + slope * centred


def _weighted_line(x: Vector, y: Vector, weight: Vector) -> tuple[float, float, float]:
    """Weighted least squares of y = a + b x: b, then the means of y and of x."""
    weight = weight / weight.sum()
    pivot, middle = float(weight @ x), float(weight @ y)
    centred = x - pivot
    square = float(weight @ centred**2)
    return (float(weight @ (centred * y)) / square if square else 0.0), middle, pivot


def _log_rss(line: Vector, u: Vector) -> float:
    return math.inf if float(line.min()) <= 0 else _rss(u, np.log(line))


def _rss(observed: Vector, fitted: Vector) -> float:
    residual = observed - fitted
    return float(residual @ residual)
