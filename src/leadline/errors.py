"""The exceptions of Leadline, the import of optional libraries, and the checks of arguments.

Every message is one or two sentences that say what was asked, what was found and what to do.
The command line prints the message alone and ends with exit code 2.

Arguments that many functions share (seeds, counts, paths, callbacks) are checked where they enter,
by the `check_...` functions at the end: a wrong one would otherwise end deep inside torch or SQLite.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import inspect
import operator
import os
import pathlib
from collections import abc
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import ModuleType
    from typing import Any

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
    "Progress",
    "RecipeError",
    "RecordError",
    "UnknownName",
    "as_whole_number",
    "check_count",
    "check_function",
    "check_path",
    "check_progress",
    "check_seed",
    "check_text",
    "did_you_mean",
    "is_nested_deeply",
    "join_words",
    "nearest_names",
    "no_progress",
    "require",
    "shown",
    "words_of",
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


def nearest_names(name: str, known: Iterable[str], *, at_most: int = 3) -> list[str]:
    """Return the known names that look most like `name`, best first; letter case is ignored."""
    by_folded: dict[str, str] = {}
    for candidate in known:
        by_folded.setdefault(candidate.casefold(), candidate)
    close = difflib.get_close_matches(name.casefold(), list(by_folded), n=at_most, cutoff=0.6)
    return [by_folded[folded] for folded in close]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean ...?" with the nearest names, or nothing if none is near."""
    near = nearest_names(name, known)
    return f" Did you mean {join_words(map(repr, near), last='or')}?" if near else ""


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


# --- words ---------------------------------------------------------------------------------------

_MOST_WORDS = 300


def join_words(words: Iterable[str], *, last: str = "and") -> str:
    """Return `a`, `a and b` or `a, b and c`; `last` is the word before the last one."""
    parts = list(words)
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} {last} {parts[-1]}"


def words_of(error: BaseException, *, first_line: bool = False) -> str:
    """Return what somebody else's exception says, as a sentence on one line, shortened if long.

    `first_line` leaves out what follows: torch and transformers add stacks and advice there.
    """
    lines = [line for line in str(error).splitlines() if line.strip()]
    text = " ".join(" ".join(lines[:1] if first_line else lines).split())
    if not text:
        return f"{type(error).__name__} without a message."
    if len(text) > _MOST_WORDS:
        text = f"{text[:_MOST_WORDS].rstrip()} ..."
    return text if text.endswith((".", "!", "?")) else f"{text}."


# --- arguments -----------------------------------------------------------------------------------

MOST_NESTED = 64
"""The deepest nesting of lists and mappings; the recursion limit of Python is not far above."""
_LONGEST = 80
_SEEDS = 2**63
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def shown(value: object) -> str:
    """Return a value as a message shows it: a short literal as it is, anything else by its type."""
    if isinstance(value, int) and abs(value) >= 10**_LONGEST:
        return f"a whole number of {value.bit_length()} bits"
    if value is None or isinstance(value, bool | int | float | str | bytes):
        text = repr(value)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    if isinstance(value, type):
        return f"the class {value.__name__}"
    article = "an" if type(value).__name__[0] in "aeiouAEIOU" else "a"
    return f"{article} {type(value).__name__}"


def as_whole_number(value: Any) -> int | None:
    """Return a whole number as a plain int, also one of numpy; None for all else, also for bools."""
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def check_seed(seed: Any, *, error: type[LeadlineError] = InputError) -> int:
    """Return a seed as a plain int, or refuse it."""
    number = as_whole_number(seed)
    if number is None or not 0 <= number < _SEEDS:
        limit = "" if number is None or number < 0 else " and below 2**63"
        raise error(f"A seed is a whole number from 0 on{limit}, not {shown(seed)}.")
    return number


def check_count(
    value: Any,
    name: str,
    *,
    least: int = 1,
    example: str = "",
    error: type[LeadlineError] = InputError,
) -> int:
    """Return a number of things as a plain int, or refuse it; `example` shows how to give it."""
    number = as_whole_number(value)
    if number is None or number < least:
        such = f", such as {example}" if example else ""
        raise error(f"{name} is {shown(value)}; give a whole number of at least {least}{such}.")
    return number


def check_text(text: Any, name: str, *, error: type[LeadlineError] = InputError) -> None:
    """Refuse what is no text, and a text with lone surrogates, which no file can hold."""
    if not isinstance(text, str):
        raise error(f"{name} is {shown(text)}; give a text.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as reason:
        raise error(f"{name} is {shown(text)}, and {_surrogate(reason)}") from reason


def _surrogate(error: UnicodeEncodeError) -> str:
    return f"character {error.start + 1} is a lone surrogate, which UTF-8 cannot store; remove it."


def check_path(
    path: Any, *, name: str = "path", error: type[LeadlineError] = RecordError
) -> pathlib.Path:
    """Return a path as a Path, or refuse what no file system takes."""
    text: Any = path
    if isinstance(path, os.PathLike):
        text = os.fspath(path)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if not isinstance(text, str):
        raise error(f"{name} is {shown(text)}; give a text or a pathlib.Path.")  # pyright: ignore[reportUnknownArgumentType]
    if not text:
        raise error(f"{name} is empty; give the name of a file or a folder.")
    if "\0" in text:
        raise error(f"{name} is {shown(text)}, with a NUL character in it; remove it.")
    try:
        os.lstat(text)
    except UnicodeEncodeError as reason:
        raise error(f"{name} is {shown(text)}, and {_surrogate(reason)}") from reason
    except OSError as reason:
        if reason.errno not in _ABSENT:
            raise error(f"{name} is {shown(text)}, which cannot be used: {reason.strerror}.") from (
                reason
            )
    return pathlib.Path(text)


def check_function(function: Any, name: str, arguments: Sequence[str]) -> None:
    """Refuse what cannot be called with these positional arguments."""
    words = join_words(arguments)
    if not callable(function):
        raise InputError(f"{name} is {shown(function)}; give a function of {words}.")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # some functions written in C have no signature; the call itself will fail
    try:
        signature.bind(*arguments)
    except TypeError as reason:
        count = "1 argument" if len(arguments) == 1 else f"{len(arguments)} arguments"
        raise InputError(
            f"{name} is called with {count} ({words}), and the function does not take "
            f"{'it' if len(arguments) == 1 else 'them'}: {reason}."
        ) from reason


Progress = abc.Callable[[str, int, int], None]
"""How long work tells how far it is: what is being done, the steps done, and all steps."""


def no_progress(_doing: str, _done: int, _total: int) -> None:
    """Tell nobody how far the work is."""


def check_progress(progress: Progress | None) -> Progress:
    """Return what tells of the progress, or nothing that does; refuse what cannot be called so."""
    if progress is None:
        return no_progress
    check_function(progress, "progress", ("what is being done", "the steps done", "all steps"))
    return progress


def is_nested_deeply(value: object) -> bool:
    """Whether more than `MOST_NESTED` lists and mappings are nested, or one contains itself."""
    level: list[Any] = [value]
    for _ in range(MOST_NESTED + 1):
        # Each object once per level, so that lists that hold each other do not multiply.
        holders: dict[int, Any] = {}
        for item in level:
            if isinstance(item, abc.Mapping | list | tuple):
                holders[id(cast("object", item))] = item
        if not holders:
            return False
        level = []
        for item in holders.values():
            level += item.values() if isinstance(item, abc.Mapping) else item
    return True
