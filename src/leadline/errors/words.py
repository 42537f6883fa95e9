"""The words that messages are made of: lists of words, values, near names, what others' errors say."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["did_you_mean", "join_words", "nearest_names", "shown", "words_of"]

_LONGEST = 80
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
