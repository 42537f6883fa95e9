"""One number of one quantity at one site: a row of the record."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leadline.record.rows.site import Site

__all__ = ["Reading", "scale_by_power"]


def scale_by_power(value: float, exponent: int) -> float:
    """The value times two to the power of `exponent`, zero or infinite beyond float64."""
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.copysign(math.inf, value)


@dataclass(frozen=True, slots=True)
class Reading:
    """One number.

    `statistic` says how tokens were summed up: `mean`, `median`, `mean_without_first`,
    `median_without_first`, or `value` where there is one number per site. `lower` and `upper`
    hold a certified interval or a standard error where the quantity has one. `run` names the
    cell of a sweep, `step` the training step.

    `exponent` is there for numbers beyond the range of float64, such as a residual of
    10^(-10^18): the number is `value` times two to the power of this exact integer. `lower` and
    `upper` then have the same factor.
    """

    quantity: str
    site: Site
    statistic: str
    value: float
    lower: float | None = None
    upper: float | None = None
    run: str = ""
    step: int = 0
    seed: int | None = None
    exponent: int | None = None

    @property
    def number(self) -> float:
        """The number itself, zero or infinite where it is beyond float64."""
        return scale_by_power(self.value, self.exponent or 0)

    @property
    def log10(self) -> float:
        """The logarithm of the number, also where the number itself is beyond float64."""
        if not self.value > 0:
            return -math.inf if self.value == 0 else math.nan
        try:
            return math.log10(self.value) + (self.exponent or 0) * math.log10(2)
        except OverflowError:
            return math.copysign(math.inf, self.exponent or 0)
