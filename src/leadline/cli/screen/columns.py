"""Names with their texts, and paragraphs: wrapped to the width of a terminal, in full in a pipe.

The table is imported when something is printed, so that the help of a command stays quick.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_line", "print_text", "two_columns"]


def two_columns(
    rows: Iterable[tuple[str, str]], console: Console, *, styles: Sequence[str] = ()
) -> None:
    """Print rows of a name and a text, the texts aligned; `styles` has one style per row."""
    from leadline.record.words.table import Row, TableColumn, TextTable

    table_rows = [
        Row((name, " ".join(text.split())), styles[at] if styles else "")
        for at, (name, text) in enumerate(rows)
    ]
    TextTable((TableColumn(), TableColumn(wraps=True)), tuple(table_rows), indent=2).show(console)


def print_line(console: Console, line: str = "", *, style: str = "") -> None:
    """Print a sentence; on a terminal it is broken between words."""
    from leadline.record.words import screen

    screen.print_line(console, line, style=style)


def print_text(text: str, console: Console) -> None:
    """Print paragraphs, filled to the width of a terminal; indented lines stay as they are."""
    for number, paragraph in enumerate(text.split("\n\n")):
        if number:
            print_line(console)
        plain = not any(line.startswith(" ") for line in paragraph.split("\n"))
        if plain and console.is_terminal:
            print_line(console, " ".join(paragraph.split("\n")))
        else:
            console.print(paragraph, markup=False, soft_wrap=True)
