"""The time that is left, from the seconds that were predicted for each step.

    pace      seconds that the finished steps took, over those predicted for them; 1 before any has
    left      what the present step still has, at least nothing, and all later ones, times the pace

Inside of a step the number only falls, with the clock; where a step takes longer than predicted it
stays at what comes behind it. It rises only when a step ends and was slower than the ones before.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Forecast"]


class Forecast:
    """Predicted seconds of all steps, and how long those took that have ended."""

    def __init__(self, seconds: Sequence[float], now: float) -> None:
        self._predicted = [max(0.0, one) for one in seconds]
        self._first = now
        self._began = now
        self._step = 0

    def reach(self, step: int, now: float) -> None:
        """Say that this step begins; steps that are told again are no news."""
        if step > self._step:
            self._step, self._began = min(step, len(self._predicted)), now

    def left(self, now: float) -> float:
        """Seconds that are left."""
        finished = sum(self._predicted[: self._step])
        pace = (self._began - self._first) / finished if finished > 0 else 1.0
        present, *later = self._predicted[self._step :] or [0.0]
        return max(0.0, pace * present - (now - self._began)) + pace * sum(later)

    @property
    def total(self) -> int:
        """How many steps there are."""
        return len(self._predicted)
