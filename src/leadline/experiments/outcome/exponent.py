"""The exponent with which a number grows over depth, from several seeds.

    log y = a + b log L         least squares over the depths L, one fit per seed
    slope = mean of b over the seeds,   error = sd of b / sqrt(seeds)     (sd with seeds - 1)

Least squares is linear in log y, so the slope is also that of the mean of log y over the seeds; R²
is 1 - RSS / TSS of that mean line. One seed tells nothing about the next one: its error is NaN.
Where the line is flat there is no variance to explain, R² is then small or NaN (TSS = 0), and the
error alone says how well the slope is known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from leadline.errors import InputError
from leadline.record.provenance import strict_number
from leadline.record.words.numbers import format_number

__all__ = ["Exponent", "fit_exponent"]


@dataclass(frozen=True, slots=True)
class Exponent:
    """y ~ L^slope; `error` is the standard error over the seeds, NaN for one seed."""

    slope: float
    error: float
    seeds: int
    r2: float

    @property
    def text(self) -> str:
        """The exponent in words: `L^-0.481 ± 0.006 (3 seeds)`."""
        seeds = f"{self.seeds} seed{'' if self.seeds == 1 else 's'}"
        spread = "" if math.isnan(self.error) else f" ± {format_number(self.error, digits=2)}"
        return f"L^{format_number(self.slope, digits=3)}{spread} ({seeds})"

    def __str__(self) -> str:
        return self.text

    def within(self, expected: float, tolerance: float) -> bool:
        """Whether the slope lies within `tolerance` of what is expected."""
        return abs(self.slope - expected) <= tolerance

    def to_json(self) -> dict[str, Any]:
        """Return the exponent as strict JSON."""
        return {
            "slope": strict_number(self.slope),
            "error": strict_number(self.error),
            "seeds": self.seeds,
            "r2": strict_number(self.r2),
            "text": self.text,
        }


def fit_exponent(depths: Sequence[int], values: Mapping[int, Sequence[float]]) -> Exponent:
    """Fit y ~ L^b over `depths`; `values` holds for every seed one number per depth."""
    _check(depths, values)
    x = np.log(np.asarray(depths, dtype=np.float64))
    x = x - x.mean()
    y = np.log(np.asarray([list(line) for line in values.values()], dtype=np.float64))
    y = y - y[:, :1]  # so that a constant has the slope 0 and not one of rounding
    slopes = (y @ x) / (x @ x)
    seeds = len(values)
    error = float(np.std(slopes, ddof=1)) / math.sqrt(seeds) if seeds > 1 else math.nan
    mean = y.mean(axis=0)
    mean = mean - mean.mean()
    slope = float(slopes.mean())
    total = float(mean @ mean)
    left = mean - slope * x
    r2 = 1.0 - float(left @ left) / total if total > 0.0 else math.nan
    return Exponent(slope, error, seeds, r2)


def _check(depths: Sequence[int], values: Mapping[int, Sequence[float]]) -> None:
    """Refuse what has no exponent."""
    if len(set(depths)) < 2:
        raise InputError(
            f"An exponent over depth needs at least two depths, and {list(depths)} was given."
        )
    if min(depths) < 1:
        raise InputError(f"A depth is at least 1, and {min(depths)} was given.")
    if not values:
        raise InputError("An exponent over depth needs the numbers of at least one seed.")
    for seed, line in values.items():
        if len(line) != len(depths):
            raise InputError(
                f"Seed {seed} has {len(line)} numbers for {len(depths)} depths; give one for each."
            )
        for depth, value in zip(depths, line, strict=True):
            if not (value > 0.0 and math.isfinite(value)):
                raise InputError(
                    f"Seed {seed} has {value} at depth {depth}, which has no logarithm: "
                    "leave that depth out."
                )
