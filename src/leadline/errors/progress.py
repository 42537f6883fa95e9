"""How long work tells how far it is, and who listens."""

from __future__ import annotations

from collections import abc
from typing import Protocol, runtime_checkable

from leadline.errors.arguments import check_function

__all__ = ["Foreseeing", "Progress", "check_progress", "no_progress"]

Progress = abc.Callable[[str, int, int], None]
"""How long work tells how far it is: what is being done, the steps done, and all steps."""


@runtime_checkable
class Foreseeing(Protocol):
    """What tells of the progress and wants to know beforehand how long each step may take."""

    def foresee(self, seconds: abc.Sequence[float]) -> None:
        """Take the predicted seconds of all steps, from the present one on."""
        ...


def no_progress(_doing: str, _done: int, _total: int) -> None:
    """Tell nobody how far the work is."""


def check_progress(progress: Progress | None) -> Progress:
    """Return what tells of the progress, or nothing that does; refuse what cannot be called so."""
    if progress is None:
        return no_progress
    check_function(progress, "progress", ("what is being done", "the steps done", "all steps"))
    return progress
