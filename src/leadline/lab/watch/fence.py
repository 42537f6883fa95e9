"""Keep the faults of a monitor away from the loop that it watches.

Everything that runs inside somebody's forward, backward or optimizer step goes through `guard`: an
exception becomes a note and one line in the log `leadline.watch`, and what the sample had so far is
given up. After `MOST_FAULTS` samples in a row that failed, the watch switches itself off.

`shield` is the last line, around whatever somebody else calls: what gets past a guard, a fault of
the guard itself among it, switches the watch off. Only `TrainingStopped` passes, which the user has
asked for.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, TypeVar

from leadline.errors import LeadlineError, TrainingStopped

__all__ = ["MOST_FAULTS", "Fence", "log"]

log = logging.getLogger("leadline.watch")
MOST_FAULTS = 3
"""Samples that may fail one after the other before the watch switches itself off."""
MOST_NOTES = 50
"""More notes than these are not kept: a loop may run for months."""

Returned = TypeVar("Returned")


class Fence:
    """Turns faults into notes. `off` is set where there have been too many of them."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.notes: list[str] = []
        self._subjects: set[str] = set()
        self.off = False
        self.on_fault: Callable[[], None] = lambda: None
        """Called after a fault, to give up the sample that is under way."""
        self.quiet = quiet
        self._faults = 0

    def note(self, sentence: str, *, about: str = "") -> None:
        """Keep a sentence for the user, and say it once in the log.

        Of several sentences `about` the same thing, with other numbers in them, the first is kept.
        """
        known = sentence in self.notes or (about and about in self._subjects)
        if known or len(self.notes) >= MOST_NOTES:
            return
        self._subjects.add(about)
        self.notes.append(sentence)
        if not self.quiet:
            log.warning("leadline.watch: %s", sentence)

    def sample_ended(self) -> None:
        """Count a sample that went well."""
        self._faults = 0

    def fault(self, error: Exception, what: str) -> None:
        """Note a fault; the third sample in a row that fails is the last."""
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = "" if isinstance(error, LeadlineError) else f" ({where.filename}:{where.lineno})"
        self.note(
            f"{what} failed: {type(error).__name__}: {error}{place}. The training goes on; this "
            "sample is left out."
        )
        self._faults += 1
        if self._faults >= MOST_FAULTS and not self.off:
            self.off = True
            self.note(
                f"{MOST_FAULTS} samples in a row failed, so the watch has switched itself off; the "
                "training goes on."
            )
        try:
            self.on_fault()
        except Exception as second:
            self.off = True
            self.note(f"The watch is off: {type(second).__name__}: {second}")

    def guard(self, what: str, function: Callable[..., Returned]) -> Callable[..., Returned | None]:
        """Return the function with a fence around it: it never raises an Exception."""

        @wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Returned | None:
            if self.off:
                return None
            try:
                return function(*args, **kwargs)
            except Exception as error:
                self.fault(error, what)
                return None

        return guarded

    def shield(self, function: Callable[..., Returned]) -> Callable[..., Returned | None]:
        """Return the function for somebody else to call: it raises nothing but TrainingStopped."""

        @wraps(function)
        def shielded(*args: Any, **kwargs: Any) -> Returned | None:
            try:
                return function(*args, **kwargs)
            except TrainingStopped:
                raise
            except Exception as error:
                self.off = True
                self.notes.append(f"The watch is off: {type(error).__name__}: {error}")
            with suppress(Exception):
                self.on_fault()
            return None

        return shielded
