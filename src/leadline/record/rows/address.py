"""How one line over depth is written in one word: `encoder/update.norm[mlp]`.

The stack stands before a slash and is left out for the first stack of a record. The role stands
in brackets for sublayers, with the number of the write where a block has two of that role:
`update.norm[mlp 3]`. A role may have spaces and end in a number itself: `from site 0`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from leadline.record.rows.profile import Profile

__all__ = ["WHOLE_POINTS", "Address", "address_of", "parse_address"]

WHOLE_POINTS = ("stream", "block")
"""The points that an address leaves out."""
_PATTERN = re.compile(
    r"(?:(?P<stack>[^/\[\]]+)/)?(?P<quantity>[^/\[\]]+)"
    r"(?:\[(?P<place>[^\[\]]+)\])?"
)
_NUMBERED = re.compile(r"(?P<point>.*\S) (?P<sublayer>\d+)")


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


def parse_address(text: str, *, points: Collection[str] = ()) -> Address | None:
    """Read an address; None if it is not written like one.

    A number at the end of the brackets is that of a write, unless all of it is one of the `points`.
    """
    match = _PATTERN.fullmatch(text)
    if match is None:
        return None
    quantity, stack, place = match["quantity"], match["stack"], match["place"]
    numbered = None if place is None or place in points else _NUMBERED.fullmatch(place)
    if numbered is None:
        return Address(quantity, stack, place)
    return Address(quantity, stack, numbered["point"], int(numbered["sublayer"]))


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
        point=None if line.point in WHOLE_POINTS else line.point,
        sublayer=line.sublayer if len(twins) > 1 else None,
    )
