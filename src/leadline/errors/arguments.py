"""The checks of arguments that many functions share: seeds, counts, texts, paths, functions.

They are checked where they enter: a wrong one would otherwise end deep inside torch or SQLite.
"""

from __future__ import annotations

import errno
import inspect
import operator
import os
import pathlib
from collections import abc
from typing import TYPE_CHECKING, cast

from leadline.errors.exceptions import InputError, LeadlineError, RecordError
from leadline.errors.words import join_words, shown

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = [
    "MOST_NESTED",
    "as_whole_number",
    "check_count",
    "check_function",
    "check_path",
    "check_seed",
    "check_text",
    "is_nested_deeply",
]

MOST_NESTED = 64
"""The deepest nesting of lists and mappings; the recursion limit of Python is not far above."""
_SEEDS = 2**63
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


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
