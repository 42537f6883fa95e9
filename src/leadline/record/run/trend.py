"""How a loss is doing now: its level, whether it falls or rises, and where it was lowest.

The loss of single updates is noisy, so levels are medians. `now` is the median of the last few
updates. It is compared with the tenth of the run before them: the difference counts where it is
more than three standard errors of a median, 1.25 sigma / sqrt(n), with sigma from the differences
of neighbouring updates, which a slow fall hardly widens. A fall too slow for that is looked for
two and four tenths back, and counts where the nearer difference has at least half of its share.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from leadline.record.words.numbers import format_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Direction", "Trend", "trend_of"]

SHARE = 0.1
"""The share of the run that `now` is taken of, and that it is compared with."""
LEAST, MOST = 5, 100
"""So many updates `now` is taken of, at least and at most."""
ERRORS = 3.0
"""A difference of fewer standard errors is chance."""
BACK = (1, 2, 4)
"""So many tenths of the run back `now` is compared."""
SHARE_OF_SLOW = 0.5
"""A slow change goes on where the last tenth has at least this much of its even share in it."""
STANDS_OUT = 8.0
"""Standard deviations above the level from which on the last update is told by itself."""
APART = 0.02
"""The lowest level is told where the loss stands above it by more than this share of it."""

Direction = Literal["falling", "rising", "level", ""]


@dataclass(frozen=True, slots=True)
class Trend:
    """A loss at one moment of a run; `direction` is empty where there are too few updates to tell.

    `lowest` is the lowest level with its step, None where the loss stands there now. `lost` is the
    first step from which on it is not finite.
    """

    step: int
    first: float
    now: float
    direction: Direction
    lowest: tuple[int, float] | None = None
    lost: int | None = None
    peak: float | None = None
    """The loss of the last update, where it stands far above the level."""

    @property
    def words(self) -> str:
        """Say it as part of a sentence: `2.41 and falling`, `7.3 and rising (lowest 2.4 ...)`."""
        if self.lost is not None:
            return f"not finite since step {self.lost:,}{self._lowest_words}"
        moving = f" and {self.direction}" if self.direction else ""
        peak = f", {format_number(self.peak, digits=3)} at the last update" if self.peak else ""
        return f"{format_number(self.now, digits=3)}{moving}{peak}{self._lowest_words}"

    @property
    def _lowest_words(self) -> str:
        if self.lowest is None:
            return ""
        step, value = self.lowest
        return f" (lowest {format_number(value, digits=3)} near step {step:,})"


def trend_of(steps: NDArray[np.int64], values: NDArray[np.float64]) -> Trend | None:
    """Return the trend of a loss; None where there is no value at all."""
    if len(values) == 0:
        return None
    finite = np.isfinite(values)
    if not bool(finite[-1]):
        last = np.flatnonzero(finite)
        before = int(last[-1]) + 1 if len(last) else 0
        lowest = _lowest(steps[:before], values[:before])
        return Trend(
            int(steps[-1]), float(values[0]), math.nan, "", lowest, lost=int(steps[before])
        )
    last_step = int(steps[-1])
    steps, values = steps[finite], values[finite]
    count = _recent(len(values))
    now = float(np.median(values[-count:]))
    lowest = _lowest(steps, values)
    if lowest is not None and now - lowest[1] <= APART * abs(lowest[1]):
        lowest = None
    direction = _direction(values, count, now)
    return Trend(last_step, float(values[0]), now, direction, lowest, peak=_peak(values, now))


def _recent(total: int) -> int:
    """How many updates `now` is taken of."""
    return min(max(LEAST, round(SHARE * total)), MOST, total)


def _direction(values: NDArray[np.float64], count: int, now: float) -> Direction:
    tenth = max(count, round(SHARE * len(values)))
    nearest: float | None = None
    for back in BACK:
        end = len(values) - count - (back - 1) * tenth
        before = values[max(0, end - tenth) : max(0, end)]
        if len(before) < LEAST:
            break
        change = now - float(np.median(before))
        nearest = change if nearest is None else nearest
        error = 1.25 * _sigma(before) * math.sqrt(1 / count + 1 / len(before))
        # A loss that is the same to the last digit is level, whatever rounding does.
        goes_on = nearest * change > 0 and abs(nearest) >= SHARE_OF_SLOW * abs(change) / back
        if goes_on and abs(change) > max(ERRORS * error, 1e-6 * abs(now)):
            return "rising" if change > 0 else "falling"
    return "" if nearest is None else "level"


def _peak(values: NDArray[np.float64], now: float) -> float | None:
    """The last value, where no noise explains how far it stands above the level."""
    recent = values[-MOST - 1 : -1]
    if len(recent) < LEAST or values[-1] - now <= max(
        STANDS_OUT * _sigma(recent), APART * abs(now)
    ):
        return None
    return float(values[-1])


def _sigma(values: NDArray[np.float64]) -> float:
    """The standard deviation of one update, whatever the level does."""
    return 1.4826 * float(np.median(np.abs(np.diff(values)))) / math.sqrt(2)


def _lowest(steps: NDArray[np.int64], values: NDArray[np.float64]) -> tuple[int, float] | None:
    """The lowest level, a median of neighbouring updates, and the step in their middle."""
    finite = np.isfinite(values)
    steps, values = steps[finite], values[finite]
    if len(values) == 0:
        return None
    count = _recent(len(values))
    starts = range(len(values) % count, len(values), count)
    levels = [float(np.median(values[start : start + count])) for start in starts]
    at = starts[int(np.argmin(levels))]
    return int(steps[at + count // 2]), min(levels)
