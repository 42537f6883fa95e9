"""What watching costs: the time of sampled updates beside that of the updates in between.

The time of an update is that between the ends of two optimizer steps, with everything that the loop
does in it. The first sample, which proves the anatomy, is counted apart.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from statistics import median

__all__ = ["Overhead", "Pace"]

MOST_KEPT = 512
"""Of each kind so many times are kept: medians of the recent ones."""


@dataclass(frozen=True)
class Overhead:
    """How much longer a sampled update takes, and what that comes to; None where unknown."""

    updates: int
    samples: int
    first_seconds: float
    """Of the first sample, which proves the anatomy."""
    sampled_ratio: float | None
    """Median of the sampled updates over that of the idle ones."""
    share: float | None
    """What sampling costs of all the time, the first sample left out."""

    def __str__(self) -> str:
        """Say it in a sentence."""
        text = f"Watched {self.updates} updates, {self.samples} of them sampled"
        if self.sampled_ratio is None or self.share is None:
            return f"{text}; too few to say what sampling costs."
        return (
            f"{text}: a sampled update took {self.sampled_ratio:.2f} times an idle one, "
            f"{100 * max(self.share, 0.0):.1f} % of the time in all; the first sample, with the "
            f"proof of the anatomy, took {self.first_seconds:.1f} s."
        )


class Pace:
    """Takes the times of updates."""

    def __init__(self) -> None:
        self._idle: deque[float] = deque(maxlen=MOST_KEPT)
        self._sampled: deque[float] = deque(maxlen=MOST_KEPT)
        self._last = time.perf_counter()
        self._updates = self._samples = 0
        self._first = 0.0

    def update(self, *, sampled: bool) -> None:
        """Take the time of the update that has just ended."""
        now = time.perf_counter()
        taken, self._last = now - self._last, now
        self._updates += 1
        if not sampled:
            self._idle.append(taken)
            return
        self._samples += 1
        if self._samples == 1:
            self._first = taken
        else:
            self._sampled.append(taken)

    def overhead(self) -> Overhead:
        """Compare the kinds."""
        ratio = share = None
        if len(self._sampled) > 1 and len(self._idle) > 1:
            idle = median(self._idle)
            ratio = median(self._sampled) / idle
            later = self._samples - 1
            extra = later * (median(self._sampled) - idle)
            share = extra / ((self._updates - 1) * idle + extra)
        return Overhead(self._updates, self._samples, self._first, ratio, share)
