"""What can go wrong: the exceptions of Leadline.

Every message is one or two sentences that say what was asked, what was found and what to do.
The command line prints the message alone and ends with exit code 2.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from leadline.errors.words import did_you_mean, nearest_names, shown

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "FULL_DISK",
    "AnatomyError",
    "BalanceError",
    "CatalogError",
    "InputError",
    "LabError",
    "LeadlineError",
    "LoadingError",
    "MachineError",
    "MemoryLack",
    "MissingExtra",
    "ProbeError",
    "ProcessError",
    "RecipeError",
    "RecordError",
    "UnknownName",
]


FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The errors of the system that say: no space left, no quota left, a larger file than allowed."""


class LeadlineError(Exception):
    """Anything that the user can put right. Catch this one to catch them all."""


class CatalogError(LeadlineError):
    """A name, a choice or a plug-in that the catalog cannot take."""


class RecordError(LeadlineError):
    """A record file that cannot be read or written."""


class AnatomyError(LeadlineError):
    """A model in which no stream and no sublayers were found."""


class BalanceError(AnatomyError):
    """An anatomy whose books do not balance."""


class InputError(LeadlineError):
    """A text, a token file or a tensor that the model cannot take."""


class LabError(LeadlineError):
    """A training run or a sweep that cannot be done as asked."""


class LoadingError(LeadlineError):
    """A model that cannot be loaded."""


class MachineError(LeadlineError):
    """Something that this machine, its processor or its system cannot do."""


class MemoryLack(MachineError):
    """A request that needs more memory than is free."""


class MissingExtra(LeadlineError):
    """A library that comes with one of the extras is not installed."""


class ProbeError(LeadlineError):
    """A probe that cannot measure what was asked."""


class ProcessError(LeadlineError):
    """A process of several that left, or does something else than the others; `by` is its rank."""

    def __init__(self, message: str, by: int | None = None) -> None:
        super().__init__(message)
        self.by = by


class RecipeError(LeadlineError):
    """A model that cannot be built as described, or weights that do not fit it."""


class TrainingStopped(LeadlineError):
    """A training that was to end at a serious warning of `leadline.watch`, and did."""


MOST_NAMES = 40
"""A message lists at most so many known names."""


class UnknownName(LeadlineError, LookupError):
    """A name that nothing has. The message offers the nearest names and lists the known ones."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind = kind
        self.name = name
        self.known = tuple(sorted(known))
        # All three arguments go to Exception, so that the error survives pickling.
        super().__init__(kind, name, self.known)

    @property
    def nearest(self) -> list[str]:
        """The known names that look most like the asked one, best first."""
        return nearest_names(str(self.name), self.known)

    def __str__(self) -> str:
        # A caller in Python may pass a number or a list as the name.
        near = did_you_mean(str(self.name), self.known)
        sentence = f"No {self.kind} is called {shown(self.name)}.{near}"
        listing = ", ".join(self.known[:MOST_NAMES]) if self.known else "none"
        more = len(self.known) - MOST_NAMES
        return f"{sentence} Known: {listing}{f' and {more} more' if more > 0 else ''}."
