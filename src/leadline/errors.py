"""The exceptions of Leadline, and how an optional library is asked for.

Every message is one or two sentences that say what was asked, what was found and what to do.
The command line prints the message alone and ends with exit code 2.
"""

from __future__ import annotations

import difflib
import errno
import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import ModuleType

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
    "MissingExtra",
    "ProbeError",
    "RecipeError",
    "RecordError",
    "UnknownName",
    "did_you_mean",
    "nearest_names",
    "require",
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


class MissingExtra(LeadlineError):
    """A library that comes with one of the extras is not installed."""


class ProbeError(LeadlineError):
    """A probe that cannot measure what was asked."""


class RecipeError(LeadlineError):
    """A model that cannot be built as described, or weights that do not fit it."""


MOST_NAMES = 40
"""So many known names a message lists."""


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
        return nearest_names(self.name, self.known)

    def __str__(self) -> str:
        sentence = f"No {self.kind} is called {self.name!r}.{did_you_mean(self.name, self.known)}"
        known = ", ".join(self.known[:MOST_NAMES]) if self.known else "none"
        more = len(self.known) - MOST_NAMES
        return f"{sentence} Known: {known}{f' and {more} more' if more > 0 else ''}."


def nearest_names(name: str, known: Iterable[str], *, at_most: int = 3) -> list[str]:
    """Return the known names that look most like `name`, best first; letter case is ignored."""
    by_folded: dict[str, str] = {}
    for candidate in known:
        by_folded.setdefault(candidate.casefold(), candidate)
    close = difflib.get_close_matches(name.casefold(), list(by_folded), n=at_most, cutoff=0.6)
    return [by_folded[folded] for folded in close]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the question whether a near name was meant, after a space; empty where none is near."""
    near = nearest_names(name, known)
    return f" Did you mean {_either(near)}?" if near else ""


def require(module_name: str, *, extra: str) -> ModuleType:
    """Import an optional library, or raise `MissingExtra` that names the extra to install.

    An installed library that is broken inside keeps its own ImportError.
    """
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        top = module_name.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != top:
            raise
        raise MissingExtra(
            f"This needs the library {top}, which is not installed; "
            f"install it with: pip install 'leadline[{extra}]'"
        ) from error


def _either(names: Sequence[str]) -> str:
    quoted = [repr(name) for name in names]
    if len(quoted) == 1:
        return quoted[0]
    return f"{', '.join(quoted[:-1])} or {quoted[-1]}"
