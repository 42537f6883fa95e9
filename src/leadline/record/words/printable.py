"""Texts of a record with their control characters spelled out.

A record may come from anybody, and a name in it must neither clear the screen of its reader nor
break a table nor show the words beside it in another order.
"""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from typing import TYPE_CHECKING

from leadline.record.words.table import Row, TableCell, TextTable

if TYPE_CHECKING:
    from leadline.record.words.table import TableColumn

__all__ = ["printable", "printable_table"]

_COMMANDS = ("Cc", "Zl", "Zp")
"""The categories of Unicode that break a line, ring, colour or move the cursor."""
_TURNS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Bidi_Control of Unicode: letters that are written from the right need none of them."""


def printable(text: str, *, keep: str = "") -> str:
    r"""Return a text with its control characters spelled out; those in `keep` stay.

    >>> printable("gpt2\x1b[2J\n")
    'gpt2\\x1b[2J\\n'
    """
    if text.isprintable():
        return text
    return "".join(
        sign.encode("unicode_escape").decode("ascii")
        if sign not in keep and (sign in _TURNS or unicodedata.category(sign) in _COMMANDS)
        else sign
        for sign in text
    )


def printable_table(table: TextTable) -> TextTable:
    """Return a table with the control characters of its titles and cells spelled out."""
    rows = (Row(tuple(map(_cell, row.cells)), row.style) for row in table.rows)
    return replace(table, columns=tuple(map(_column, table.columns)), rows=tuple(rows))


def _cell(cell: str | TableCell) -> str | TableCell:
    if isinstance(cell, str):
        return printable(cell)
    return replace(cell, forms=tuple(map(printable, cell.forms)))


def _column(column: TableColumn) -> TableColumn:
    notes = tuple(map(printable, column.notes))
    return replace(column, title=printable(column.title), notes=notes)
