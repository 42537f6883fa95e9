"""Keep the faults of a monitor away from the loop that it watches.

Everything that runs inside somebody's forward, backward or optimizer step goes through `guard`: an
exception becomes a note and one line in the log `leadline.watch`, and what the sample had so far is
given up. After `MOST_FAULTS` samples in a row that failed and showed nothing, the watch switches
itself off. What the
user hands in and the watch calls, such as `on_warning`, goes through `lenient`: it may fail as often
as it likes.

What the handler of a signal raises, such as the notice that a cluster takes the machine back, is no
fault of ours: it passes, whatever it interrupts.

`shield` is the last line, around whatever somebody else calls: what gets past a guard, a fault of
the guard itself among it, switches the watch off. Only `TrainingStopped` passes, which the user has
asked for.
"""

from __future__ import annotations

import logging
import signal
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial, wraps
from typing import Any, TypeVar

from leadline.errors import LeadlineError, TrainingStopped

__all__ = ["MOST_FAULTS", "Fence", "let_signals_pass", "log"]

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
        """Whether the watch reads nothing more."""
        self.why_off = ""
        self.on_fault: Callable[[], None] = lambda: None
        """Called after a fault, to give up the sample that is under way."""
        self.quiet = quiet
        self._faults = 0
        """Samples in a row that failed."""
        self._failed = False
        """Whether something has failed in the sample under way."""

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

    def sample_ended(self, *, useful: bool) -> None:
        """Go on to the next sample; after three in a row that failed and showed nothing, to none."""
        failed, self._failed = self._failed, False
        self._faults = self._faults + 1 if failed and not useful else 0
        if self._faults >= MOST_FAULTS and not self.off:
            self.switch_off(
                f"{MOST_FAULTS} samples in a row failed, so the watch has switched itself off; "
                "training continues."
            )
            self._clear_away()

    def fault(self, error: Exception, what: str) -> None:
        """Note a fault, and give the sample up."""
        let_signals_pass(error)
        self.note(f"{_said(error, what)} Training continues; this sample is left out.")
        self._failed = True
        self._clear_away()

    def _clear_away(self) -> None:
        try:
            self.on_fault()
        except Exception as second:
            self.switch_off(f"The watch is off: {type(second).__name__}: {second}")

    def switch_off(self, why: str) -> None:
        """Read nothing more, and say why."""
        self.off = True
        self.why_off = self.why_off or why
        self.note(why)

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

    def lenient(
        self, what: str, function: Callable[..., Returned]
    ) -> Callable[..., Returned | None]:
        """Return a function of the user's that may fail: a note is all that comes of it."""

        @wraps(function)
        def tolerated(*args: Any, **kwargs: Any) -> Returned | None:
            if self.off:
                return None
            try:
                return function(*args, **kwargs)
            except Exception as error:
                let_signals_pass(error)
                self.note(f"{_said(error, what)} Training and watch continue.")
                return None

        return tolerated

    def shield(self, function: Callable[..., Returned]) -> Callable[..., Returned | None]:
        """Return the function for somebody else to call: it raises nothing but TrainingStopped."""

        @wraps(function)
        def shielded(*args: Any, **kwargs: Any) -> Returned | None:
            try:
                return function(*args, **kwargs)
            except TrainingStopped:
                raise
            except Exception as error:
                let_signals_pass(error)
                self._last_line(error)
            return None

        return shielded

    def _last_line(self, error: Exception) -> None:
        """Switch off without relying on anything of ours: it may be what failed."""
        self.off = True
        words = f"The watch is off: {type(error).__name__}: {error}."
        self.why_off = self.why_off or words
        if words not in self.notes:
            self.notes.append(words)
            if not self.quiet:
                log.warning("leadline.watch: %s Training continues.", words)
        with suppress(Exception):
            self.on_fault()


def let_signals_pass(error: BaseException) -> None:
    """Raise what a signal handler has raised: it is for the loop, wherever it has hit us."""
    handlers = {_code_of(signal.getsignal(one)) for one in signal.valid_signals()} - {None}
    if handlers and any(f.f_code in handlers for f, _ in traceback.walk_tb(error.__traceback__)):
        raise error


def _code_of(handler: Any) -> Any:
    """The code that a signal handler runs; None of those that are none of Python's."""
    while isinstance(handler, partial):
        handler = handler.func
    if not hasattr(handler, "__code__"):
        handler = getattr(handler, "__call__", None)  # noqa: B004 (an object that is called)
    return getattr(handler, "__code__", None)


def _said(error: Exception, what: str) -> str:
    frames = [] if isinstance(error, LeadlineError) else traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    words = str(error) if place else str(error).removesuffix(".")
    return f"{what} failed: {type(error).__name__}: {words}{place}."
