"""Two columns of text: wrapped to the width of a terminal, one line per row in a pipe."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_title", "two_columns"]


def two_columns(rows: Iterable[tuple[str, str]], console: Console) -> None:
    """Print rows of a name and a text, the texts aligned."""
    rows = list(rows)
    left = max((len(name) for name, _ in rows), default=0) + 4
    for name, text in rows:
        first = f"  {name}".ljust(left)
        lines = [first + " ".join(text.split())]
        if console.is_terminal:
            room = max(console.width, left + 20)
            lines = textwrap.wrap(
                text,
                room,
                initial_indent=first,
                subsequent_indent=" " * left,
                break_long_words=False,
                break_on_hyphens=False,
            )
        for line in lines or [first]:
            console.print(line.rstrip(), markup=False, soft_wrap=True)


def print_title(title: str, console: Console) -> None:
    """Print a heading."""
    console.print(title, style="bold", markup=False, soft_wrap=True)
