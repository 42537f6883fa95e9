"""The law by which a quantity grows with depth.

Four laws are compared over the layers l >= 1 (layer 0 is the embedding, before any block):

    flat          y = a
    linear        y = a + b l        rate b
    power         y = a l^b          rate b
    exponential   y = a b^l          rate b, the factor per layer

For values of one sign all laws are fitted by least squares of log |y|, so that all are judged on
one scale and an error of one percent counts the same in every layer. Among them stands the one
with the smallest Bayesian information criterion, n ln(RSS / n) + k ln n (Schwarz 1978). A series
that changes sign or touches zero has no logarithm: only flat and linear are tried, on y itself.
R² is 1 - RSS / TSS on the scale of the fit.

A series is flat when its range is at most 5 % of its mean. When the best law explains less than
80 % of the variance it is not named: the series is flat if its range is at most 40 % of its mean
(±20 %), and follows no simple law otherwise. Fewer than 4 finite values have no law.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from leadline.record.numbers import format_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    Vector = NDArray[np.float64]

__all__ = ["Growth", "Law", "fit_growth"]

Law = Literal["flat", "linear", "power", "exponential", "none"]

FEWEST = 4
FLAT_RANGE = 0.05
FLAT_SPREAD = 0.20
FAINTEST = 1e-100
LEAST_R2 = 0.8
# Residuals below this are rounding. Laws that both fit to rounding tie, and the first one stands.
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Growth:
    """A law with its rate, its goodness of fit and the words for it.

    `rate` is the slope, the exponent or the factor per layer; 0 for flat, NaN for none. `r2` is 0
    for flat: a constant explains no variance, so the text gives the spread instead.
    """

    law: Law
    rate: float
    r2: float
    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def brief(self) -> str:
        """The law in at most a dozen letters, without its goodness: `l^0.52`, `×1.08/layer`."""
        if self.law == "none":
            return "no law"
        return (
            self.text.partition(" (")[0]
            .removeprefix("grows as ")
            .removeprefix("falls as ")
            .replace(" per layer", "/layer")
        )


@dataclass(frozen=True, slots=True)
class _Fit:
    law: Law
    rate: float
    rss: float
    parameters: int

    def criterion(self, count: int) -> float:
        mean_square = self.rss / count + ROUNDING**2
        return count * math.log(mean_square) + self.parameters * math.log(count)


def fit_growth(layers: Sequence[int] | ArrayLike, values: ArrayLike) -> Growth:
    """Find the law that describes the values over the layers best."""
    depth = np.asarray(layers, dtype=np.float64)
    level = np.asarray(values, dtype=np.float64)
    inside = depth >= 1
    depth, level = depth[inside], level[inside]
    finite = np.isfinite(level)
    lost = int(np.count_nonzero(~finite))
    growth = _fit_finite(depth[finite], level[finite])
    if not lost:
        return growth
    layer_word = "layer" if lost == 1 else "layers"
    text = f"{growth.text}; {lost} {layer_word} not finite"
    return Growth(growth.law, growth.rate, growth.r2, text)


def _fit_finite(depth: Vector, level: Vector) -> Growth:
    count = len(level)
    if len(np.unique(depth)) < FEWEST:
        return Growth("none", math.nan, 0.0, "too few layers for a law")
    # Dividing by the largest value keeps squares of very large and very small values in range.
    scale = float(np.max(np.abs(level)))
    if scale == 0.0:
        return Growth("flat", 0.0, 0.0, "flat (all 0)")
    level = level / scale
    centre = float(np.mean(level))
    spread = _half_range(level, centre)
    if 2.0 * spread <= FLAT_RANGE:
        return _flat(spread)

    one_sign = bool(np.all(level > 0) or np.all(level < 0))
    if one_sign:
        observed = np.log(np.abs(level))
        fits = _fits_of_logarithm(depth, np.abs(level), observed)
        direction = math.copysign(1.0, centre)
    else:
        observed = level
        fits = [_line("linear", depth, level)]
        direction = 1.0
    total = float(np.sum((observed - observed.mean()) ** 2))
    fits = [_Fit("flat", 0.0, total, 1), *fits]
    best = min(fits, key=lambda fit: fit.criterion(count))
    r2 = max(0.0, 1.0 - best.rss / total) if total > 0 else 0.0
    if r2 < LEAST_R2:
        if spread <= FLAT_SPREAD:
            return _flat(spread)
        hint = f" (best R² {r2:.2f})" if r2 >= 0.3 else ""
        return Growth("none", math.nan, r2, f"no simple law{hint}")
    rate = best.rate * scale * direction if best.law == "linear" else best.rate
    return Growth(best.law, rate, r2, _words(best.law, rate, r2))


def _fits_of_logarithm(depth: Vector, level: Vector, observed: Vector) -> list[_Fit]:
    exponential = _line("exponential", depth, observed)
    power = _line("power", np.log(depth), observed)
    return [
        _straight_in_logarithm(depth, level, observed),
        _Fit("exponential", math.exp(exponential.rate), exponential.rss, 2),
        power,
    ]


def _line(law: Law, depth: Vector, observed: Vector) -> _Fit:
    """Least squares of observed = a + b depth."""
    centred = depth - depth.mean()
    slope = float(centred @ observed / (centred @ centred))
    residual = observed - observed.mean() - slope * centred
    return _Fit(law, slope, float(residual @ residual), 2)


def _straight_in_logarithm(depth: Vector, level: Vector, observed: Vector) -> _Fit:
    """Least squares of log y = log(a + b l), by Gauss-Newton from the relative least squares.

    A step that would make a + b l negative somewhere, or not lower the residual, is halved.
    """
    if float(level.min()) < FAINTEST:
        # No straight line runs over so many orders of magnitude, and 1 / level^2 overflows.
        return _Fit("linear", 0.0, math.inf, 2)
    columns = np.stack([np.ones_like(depth), depth], axis=1)
    start, *_ = np.linalg.lstsq(columns / level[:, None], np.ones_like(level), rcond=None)
    if np.any(columns @ start <= 0):
        start = np.array([float(np.exp(observed.mean())), 0.0])
    coefficients, rss = start, _log_rss(columns @ start, observed)
    for _ in range(30):
        line = columns @ coefficients
        step, *_ = np.linalg.lstsq(columns / line[:, None], observed - np.log(line), rcond=None)
        size = 1.0
        while size > 1e-3 and not _log_rss(columns @ (coefficients + size * step), observed) < rss:
            size /= 2
        if size <= 1e-3:
            break
        coefficients = coefficients + size * step
        before, rss = rss, _log_rss(columns @ coefficients, observed)
        if before - rss <= 1e-12 * before:
            break
    return _Fit("linear", float(coefficients[1]), rss, 2)


def _log_rss(line: Vector, observed: Vector) -> float:
    if np.any(line <= 0):
        return math.inf
    return float(np.sum((np.log(line) - observed) ** 2))


def _half_range(level: Vector, centre: float) -> float:
    if centre == 0.0:
        return math.inf
    return float(np.ptp(level)) / 2 / abs(centre)


def _flat(spread: float) -> Growth:
    percent = 100 * spread
    words = "< 0.1" if percent < 0.1 else f"{percent:.1f}" if percent < 1 else f"{percent:.0f}"
    return Growth("flat", 0.0, 0.0, f"flat (±{words} %)")


def _words(law: Law, rate: float, r2: float) -> str:
    goodness = f"(R² {math.floor(r2 * 1000) / 1000:.3f})"
    if law == "linear":
        sign = "+" if rate > 0 else "-"
        return f"{sign}{format_number(abs(rate), digits=3)} per layer {goodness}"
    if law == "power":
        return f"{'grows' if rate > 0 else 'falls'} as l^{rate:.2f} {goodness}"
    if 0.1 < rate < 10:
        factor = f"{rate:.3f}" if 0.9 < rate < 1.1 else f"{rate:.2f}"
    else:
        factor = format_number(rate, digits=3)
    return f"×{factor} per layer {goodness}"
