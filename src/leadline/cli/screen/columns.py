"""Two columns of text: wrapped to the width of a terminal, one line per row in a pipe."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_line", "print_text", "print_title", "two_columns"]


def two_columns(
    rows: Iterable[tuple[str, str]], console: Console, *, styles: Sequence[str] = ()
) -> None:
    """Print rows of a name and a text, the texts aligned; `styles` has one style per row."""
    rows = list(rows)
    left = max((len(name) for name, _ in rows), default=0) + 4
    for number, (name, text) in enumerate(rows):
        first = f"  {name}".ljust(left)
        lines = [first + " ".join(text.split())]
        if console.is_terminal:
            lines = _wrapped(text, max(console.width, left + 20), first, " " * left)
        for line in lines or [first]:
            style = styles[number] if styles else ""
            console.print(line.rstrip(), style=style, markup=False, soft_wrap=True)


def print_title(title: str, console: Console) -> None:
    """Print a heading."""
    print_line(title, console, style="bold")


def print_line(text: str, console: Console, *, style: str = "") -> None:
    """Print a sentence; on a terminal it is broken between words."""
    lines = _wrapped(text, console.width) if console.is_terminal else [text]
    for line in lines:
        console.print(line, style=style, markup=False, soft_wrap=True)


def print_text(text: str, console: Console) -> None:
    """Print paragraphs, filled to the width of a terminal; indented lines stay as they are."""
    for number, paragraph in enumerate(text.split("\n\n")):
        if number:
            console.print()
        plain = not any(line.startswith(" ") for line in paragraph.split("\n"))
        if plain and console.is_terminal:
            print_line(" ".join(paragraph.split("\n")), console)
        else:
            console.print(paragraph, markup=False, soft_wrap=True)


def _wrapped(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
