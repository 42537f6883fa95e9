"""Columns of text: on a terminal the widest layout that fits, in a pipe all of it, plain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from leadline.record.words.numbers import align

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

__all__ = ["Column", "print_line", "show_table"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its title and one cell per row."""

    title: str
    cells: Sequence[str]
    side: Literal["left", "right"] = "left"
    style: str = ""

    @property
    def width(self) -> int:
        """How many places it takes on a terminal."""
        return max(cell_len(text) for text in (self.title, *self.cells))


def show_table(
    layouts: Sequence[list[Column]],
    console: Console,
    *,
    gaps: Sequence[int],
    row_styles: Sequence[str] = (),
) -> list[Column]:
    """Print the widest of the layouts that fits (all of it, into a pipe), and return it."""
    if not console.is_terminal:
        _print_plain(layouts[0], console)
        return layouts[0]
    fitting = (
        (layout, gap)
        for layout, gap in zip(layouts, gaps, strict=True)
        if _total_width(layout, gap) <= console.width
    )
    columns, gap = next(fitting, (layouts[-1], gaps[-1]))
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column.title, justify=column.side, style=column.style, overflow="fold")
    for at, cells in enumerate(zip(*(column.cells for column in columns), strict=True)):
        table.add_row(*(Text(cell) for cell in cells), style=row_styles[at] if row_styles else "")
    console.print(table)
    return columns


def _total_width(columns: Sequence[Column], gap: int) -> int:
    return sum(column.width for column in columns) + gap * (len(columns) - 1)


def _print_plain(columns: Sequence[Column], console: Console) -> None:
    rows = [
        [column.title for column in columns],
        *(list(cells) for cells in zip(*(column.cells for column in columns), strict=True)),
    ]
    right = [at for at, column in enumerate(columns) if column.side == "right"]
    for line in align(rows, right=right):
        print_line(console, line)


def print_line(console: Console, line: str = "", *, style: str = "") -> None:
    """Print one line of words, never as markup; into a pipe it is not wrapped."""
    console.print(Text(line, style=style), soft_wrap=not console.is_terminal)
