"""What a terminal can show: signs that it cannot carry, signs that would command it, their widths."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from leadline.record.words.numbers import BARS, INFINITE, NOT_A_NUMBER, PLAIN_BARS

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["encodable", "printable", "width_of"]

# For output that cannot carry the signs: bars of sparklines, marks of maps and claims.
_SIGNS = str.maketrans(
    {**dict(zip(BARS, PLAIN_BARS, strict=True)), NOT_A_NUMBER: ".", INFINITE: "!", "✓": "+", "✗": "x"}
)  # fmt: skip
_COMMANDS = ("Cc", "Zl", "Zp")
"""The categories of Unicode that break a line, ring, colour or move the cursor."""


def printable(text: str, *, keep: str = "") -> str:
    r"""Return a text with its control characters spelled out; those in `keep` stay.

    A record may come from anybody, and a name in it must not clear the screen of its reader.

    >>> printable("gpt2\x1b[2J\n")
    'gpt2\\x1b[2J\\n'
    """
    if text.isprintable():
        return text
    return "".join(
        sign.encode("unicode_escape").decode("ascii")
        if sign not in keep and unicodedata.category(sign) in _COMMANDS
        else sign
        for sign in text
    )


def encodable(text: str, console: Console) -> str:
    """Return a text with plain signs where the output cannot carry others."""
    try:
        text.encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return text.translate(_SIGNS)
    return text


def width_of(text: str) -> int:
    """Return how many places a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in "WF" else 1
        for sign in text
    )
