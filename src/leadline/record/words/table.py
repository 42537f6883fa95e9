"""One table with three renderings: plain text, a terminal, HTML.

A table is written once. Its columns say which of them give way when there is no room: a column
takes the shorter forms of its cells one after the other and goes in the end. Without a width,
as in a pipe, every column stands in full.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING

from leadline.record.words.numbers import BARS, INFINITE, NOT_A_NUMBER, PLAIN_BARS

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Row", "TableCell", "TableColumn", "TextTable", "encodable"]

GAPS = (2, 1)
"""Spaces between columns; one where two leave no room."""
NARROWEST_WRAP = 20
"""A text is not wrapped into fewer places than these."""
# For output that cannot carry the signs: bars of sparklines, marks of maps and claims.
_SIGNS = str.maketrans(
    {**dict(zip(BARS, PLAIN_BARS, strict=True)), NOT_A_NUMBER: ".", INFINITE: "!", "✓": "+", "✗": "x"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column: its title, its side, its style, and how it behaves where there is no room.

    `gives_way` has a number for each step that the column takes when the table is too wide: first
    to the shorter forms of its cells, one after the other, and with the last step it goes, unless it
    `stays`. Of all
    columns the steps with the smallest number come first, equal ones together; a step that proves
    needless once later ones are taken is taken back. A column with `wraps` is broken between words
    where nothing else helps. `notes` explain the column below the table, one for each form of its
    cells; the last one stands for all that follow.
    """

    title: str = ""
    right: bool = False
    style: str = ""
    gives_way: tuple[int, ...] = ()
    stays: bool = False
    wraps: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableCell:
    """A text with its shorter forms, the longest first; `html` stands for it in a page."""

    forms: tuple[str, ...]
    html: str = ""
    style: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """The cells of a row, and its style on a terminal."""

    cells: tuple[str | TableCell, ...]
    style: str = ""


@dataclass(frozen=True, slots=True)
class TextTable:
    """Rows under columns. Columns that find no room by giving way stand in a table below."""

    columns: tuple[TableColumn, ...]
    rows: tuple[Row, ...]
    indent: int = 0

    def text(self, width: int | None = None) -> str:
        """Return it as plain text, in full or as wide as `width`."""
        return "\n".join("".join(part for part, _ in line) for line in self._lines(width))

    __str__ = text

    def _repr_html_(self) -> str:
        return self.html()

    def html(self) -> str:
        """Return it as a `table` element."""
        sides = ["right" if column.right else "left" for column in self.columns]
        titles = "".join(
            f'<th style="text-align:{side}">{escape(column.title)}</th>'
            for side, column in zip(sides, self.columns, strict=True)
        )
        head = f"<thead><tr>{titles}</tr></thead>" if self._has_titles else ""
        body = "".join(
            "<tr>"
            + "".join(
                f'<td style="text-align:{side}">{_cell_html(cell)}</td>'
                for side, cell in zip(sides, row.cells, strict=True)
            )
            + "</tr>"
            for row in self.rows
        )
        note = escape(self._note([0] * len(self.columns)))
        span = len(self.columns)
        foot = f'<tfoot><tr><td colspan="{span}">{note}</td></tr></tfoot>' if note else ""
        return f"<table>{head}<tbody>{body}</tbody>{foot}</table>"

    def show(self, console: Console) -> None:
        """Print it: as wide as a terminal, in full into a pipe."""
        from rich.text import Text

        for line in self._lines(console.width if console.is_terminal else None):
            text = Text.assemble(*((encodable(part, console), style) for part, style in line))
            console.print(text, soft_wrap=True)

    def without_empty_columns(self) -> TextTable:
        """Leave out columns in which no row has anything."""
        kept = [
            at
            for at in range(len(self.columns))
            if any(_form(row.cells[at], 0) for row in self.rows)
        ]
        rows = (Row(tuple(row.cells[at] for at in kept), row.style) for row in self.rows)
        return replace(self, columns=tuple(self.columns[at] for at in kept), rows=tuple(rows))

    @property
    def _has_titles(self) -> bool:
        return any(column.title for column in self.columns)

    def _lines(self, width: int | None) -> Iterator[list[tuple[str, str]]]:
        """Yield the lines, each as texts with their styles."""
        room = None if width is None else width - self.indent
        forms, gap = self._layout(room)
        shown = [at for at, form in enumerate(forms) if form is not None]
        widths = self._widths(forms)
        parts = [shown]
        if room is not None:
            parts = list(_parts(shown, self._wrapped(shown, widths, gap, room), gap, room))
        for part in parts:
            fitting = widths if room is None else self._wrapped(part, widths, gap, room)
            yield from self._lines_of(part, forms, fitting, gap, wraps=room is not None)
        if note := self._note(forms):
            lines = [note] if room is None else textwrap.wrap(note, room, break_on_hyphens=False)
            yield from ([(" " * self.indent + line, "dim")] for line in lines)

    def _note(self, forms: Sequence[int | None]) -> str:
        """Return what explains the columns that are shown, each note once."""
        notes = (
            column.notes[min(form, len(column.notes) - 1)]
            for column, form in zip(self.columns, forms, strict=True)
            if form is not None and column.notes
        )
        return "; ".join(dict.fromkeys(note for note in notes if note))

    def _layout(self, room: int | None) -> tuple[list[int | None], int]:
        """Return for each column which form of its cells is shown, None where it has gone."""
        taken: list[int] = []
        forms = self._forms(taken)
        if room is None:
            return forms, GAPS[0]
        for number in sorted({step for column in self.columns for step in column.gives_way}):
            if self._total(forms, GAPS[0]) <= room:
                break
            taken.append(number)
            forms = self._forms(taken)
        if self._total(forms, GAPS[0]) <= room:
            for number in reversed(taken):
                fewer = [one for one in taken if one != number]
                steps = [c.gives_way for c in self.columns if number in c.gives_way]
                # A column takes its steps in their order, so the last one is taken back first.
                is_last = all(max(set(taken) & set(own_steps)) == number for own_steps in steps)
                if is_last and self._total(self._forms(fewer), GAPS[0]) <= room:
                    taken, forms = fewer, self._forms(fewer)
        wraps = any(column.wraps for column in self.columns)  # then words are broken instead
        gap = GAPS[0] if wraps or self._total(forms, GAPS[0]) <= room else GAPS[1]
        return forms, gap

    def _forms(self, taken: Sequence[int]) -> list[int | None]:
        """Return the form of each column after the steps with these numbers."""
        forms: list[int | None] = []
        for column in self.columns:
            steps = sum(number in taken for number in column.gives_way)
            gone = steps == len(column.gives_way) > 0 and not column.stays
            forms.append(None if gone else steps)
        return forms

    def _widths(self, forms: Sequence[int | None]) -> list[int]:
        return [
            0
            if form is None
            else max(
                (
                    width_of(column.title),
                    *(width_of(_form(row.cells[at], form)) for row in self.rows),
                )
            )
            for at, (column, form) in enumerate(zip(self.columns, forms, strict=True))
        ]

    def _total(self, forms: Sequence[int | None], gap: int) -> int:
        shown = sum(form is not None for form in forms)
        return sum(self._widths(forms)) + gap * (shown - 1)

    def _wrapped(
        self, part: Sequence[int], widths: Sequence[int], gap: int, room: int
    ) -> list[int]:
        """Return widths with which a part fits, as far as columns that wrap make it fit."""
        fitting = list(widths)
        over = sum(widths[at] for at in part) + gap * (len(part) - 1) - room
        wrapping = [at for at in part if self.columns[at].wraps]
        for at in sorted(wrapping, key=lambda one: -widths[one]):
            least = max(NARROWEST_WRAP, self._longest_word(at))  # a name is never cut in two
            fitting[at] = min(widths[at], max(widths[at] - max(over, 0), least))
            over -= widths[at] - fitting[at]
        return fitting

    def _longest_word(self, at: int) -> int:
        words = (word for row in self.rows for word in _form(row.cells[at], 0).split())
        return max(map(width_of, words), default=0)

    def _lines_of(
        self,
        part: Sequence[int],
        forms: Sequence[int | None],
        widths: Sequence[int],
        gap: int,
        *,
        wraps: bool,
    ) -> Iterator[list[tuple[str, str]]]:
        if self._has_titles:
            yield self._line([(self.columns[at].title, "dim") for at in part], part, widths, gap)
        for row in self.rows:
            cells = [
                (_form(row.cells[at], forms[at] or 0), _style(row, row.cells[at], self.columns[at]))
                for at in part
            ]
            pieces = [
                textwrap.wrap(text, widths[at], break_on_hyphens=False) or [""]
                if self.columns[at].wraps and wraps
                else [text]
                for at, (text, _) in zip(part, cells, strict=True)
            ]
            for number in range(max(map(len, pieces))):
                texts = [piece[number] if number < len(piece) else "" for piece in pieces]
                styled = [(text, style) for text, (_, style) in zip(texts, cells, strict=True)]
                yield self._line(styled, part, widths, gap)

    def _line(
        self,
        cells: Sequence[tuple[str, str]],
        part: Sequence[int],
        widths: Sequence[int],
        gap: int,
    ) -> list[tuple[str, str]]:
        line = [(" " * self.indent, "")] if self.indent else []
        for place, (at, (text, style)) in enumerate(zip(part, cells, strict=True)):
            blank = " " * (widths[at] - width_of(text))
            line += [(blank, ""), (text, style)] if self.columns[at].right else [(text, style)]
            last = not any(later for later, _ in cells[place + 1 :])
            if last:
                break
            line.append((" " * gap if self.columns[at].right else blank + " " * gap, ""))
        return line


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


def _form(cell: str | TableCell, form: int) -> str:
    return cell if isinstance(cell, str) else cell.forms[min(form, len(cell.forms) - 1)]


def _cell_html(cell: str | TableCell) -> str:
    return escape(cell) if isinstance(cell, str) else cell.html or escape(cell.forms[0])


def _style(row: Row, cell: str | TableCell, column: TableColumn) -> str:
    return row.style or ("" if isinstance(cell, str) else cell.style) or column.style


def _parts(shown: Sequence[int], widths: Sequence[int], gap: int, room: int) -> Iterator[list[int]]:
    """Share columns among tables that fit, each with the first column."""
    first, *others = shown
    part = [first]
    for at in others:
        if len(part) > 1 and sum(widths[one] + gap for one in part) + widths[at] > room:
            yield part
            part = [first]
        part.append(at)
    yield part
