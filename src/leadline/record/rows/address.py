"""How one line over depth is written in one word: `encoder/update.norm[mlp]`.

The stack stands before a slash and is left out for the first stack of a record. The role stands
in brackets for sublayers, with the number of the write where a block has two of that role:
`update.norm[mlp 3]`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.record.rows.profile import Profile

__all__ = ["Address", "address_of", "parse_address"]

_WHOLE_POINTS = ("stream", "block")
_PATTERN = re.compile(
    r"(?:(?P<stack>[^/\[\]]+)/)?(?P<quantity>[^/\[\]]+)"
    r"(?:\[(?P<point>[^\]\s]+)(?: (?P<sublayer>\d+))?\])?"
)


@dataclass(frozen=True, slots=True)
class Address:
    """The name of one line over depth."""

    quantity: str
    stack: str | None = None
    point: str | None = None
    sublayer: int | None = None

    def __str__(self) -> str:
        word = self.quantity if self.stack is None else f"{self.stack}/{self.quantity}"
        if self.point is None:
            return word
        number = "" if self.sublayer is None else f" {self.sublayer}"
        return f"{word}[{self.point}{number}]"


def parse_address(text: str) -> Address | None:
    """Read an address; None if it is not written like one."""
    match = _PATTERN.fullmatch(text)
    if match is None:
        return None
    number = match["sublayer"]
    return Address(
        match["quantity"], match["stack"], match["point"], None if number is None else int(number)
    )


def address_of(line: Profile, lines: Sequence[Profile], *, first_stack: str) -> Address:
    """Return the shortest address that tells `line` from the other lines of its quantity."""
    twins = [
        other
        for other in lines
        if (other.stack, other.statistic, other.point) == (line.stack, line.statistic, line.point)
    ]
    return Address(
        line.quantity,
        stack=None if line.stack == first_stack else line.stack,
        point=None if line.point in _WHOLE_POINTS else line.point,
        sublayer=line.sublayer if len(twins) > 1 else None,
    )
