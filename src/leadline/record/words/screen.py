"""A screen: sentences and tables in their order, as plain text, on a terminal, in HTML."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Protocol

from leadline.record.words.printable import printable, printable_table
from leadline.record.words.table import TextTable, encodable

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["MOST_ROWS", "Drawing", "Screen", "Sentence", "Showable", "print_line"]

MOST_ROWS = 12
"""How many rows a first screen has: with the answer above them they fit a terminal of 24 lines."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a screen, with its style on a terminal; an empty one parts what is around it.

    `in_python` stands for the text where Python prints it, and options of a command mean nothing.
    Lines after the first are indented by `hang` columns where a terminal breaks it.
    """

    text: str = ""
    style: str = ""
    in_python: str = ""
    hang: int = 0


class Drawing(Protocol):
    """A part that draws itself, such as a map of layers by steps; names on it are printable."""

    def text(self) -> str:
        """Return it as plain text."""
        ...

    def show(self, console: Console) -> None:
        """Print it as wide as a terminal; into a pipe as plain text."""
        ...

    def html(self) -> str:
        """Return it as a fragment of HTML."""
        ...


@dataclass(frozen=True, slots=True)
class Screen:
    """What is shown of one thing: sentences, tables and drawings in their order.

    Names on it may be anybody's, so control characters are spelled out wherever it is shown.
    """

    parts: tuple[Sentence | TextTable | Drawing, ...]

    def text(self) -> str:
        """Return it as plain text."""
        return "\n".join(
            part.in_python or part.text if isinstance(part, Sentence) else part.text()
            for part in self._without_gaps()
        )

    def show(self, console: Console) -> None:
        """Print it on a terminal or into a pipe."""
        for part in self._without_gaps():
            if isinstance(part, Sentence):
                print_line(console, part.text, style=part.style, hang=part.hang)
            else:
                part.show(console)

    def html(self) -> str:
        """Return it as a fragment of HTML."""
        pieces: list[str] = []
        for part in self._printable_parts():
            if not isinstance(part, Sentence):
                pieces.append(part.html())
            elif part.text:
                bold = "bold" in part.style
                text = escape(part.in_python or part.text)
                indent = f' style="margin-left:{part.hang}ch"' if part.hang else ""
                pieces.append(f"<div{indent}>{f'<strong>{text}</strong>' if bold else text}</div>")
        return f"<div>{''.join(pieces)}</div>"

    def _printable_parts(self) -> tuple[Sentence | TextTable | Drawing, ...]:
        return tuple(
            replace(part, text=printable(part.text), in_python=printable(part.in_python))
            if isinstance(part, Sentence)
            else printable_table(part)
            if isinstance(part, TextTable)
            else part
            for part in self.parts
        )

    def _without_gaps(self) -> list[Sentence | TextTable | Drawing]:
        """Leave out tables without rows, and empty lines that part nothing."""
        kept: list[Sentence | TextTable | Drawing] = []
        for part in self._printable_parts():
            if isinstance(part, TextTable) and not part.rows:
                continue
            empty = isinstance(part, Sentence) and not part.text
            if empty and (not kept or (isinstance(kept[-1], Sentence) and not kept[-1].text)):
                continue
            kept.append(part)
        while kept and isinstance(kept[-1], Sentence) and not kept[-1].text:
            kept.pop()
        return kept


class Showable:
    """What has a screen: `print` shows its text, and a notebook its HTML."""

    __slots__ = ()

    def screen(self, *, everything: bool = False) -> Screen:
        """Return what is shown; with `everything` every row."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.screen().text()

    def _repr_html_(self) -> str:
        return self.screen().html()


def print_line(console: Console, line: str = "", *, style: str = "", hang: int = 0) -> None:
    """Print one line of words, never as markup, broken between words; into a pipe in one piece.

    Lines after a break are indented by `hang` columns.
    """
    from rich.text import Text

    text = encodable(line, console)
    lines = [text]
    if console.is_terminal:
        indent = " " * min(hang, console.width // 2)
        lines = textwrap.wrap(
            text, console.width, break_on_hyphens=False, subsequent_indent=indent
        ) or [""]
    for piece in lines:
        console.print(Text(piece, style=style), soft_wrap=True)
