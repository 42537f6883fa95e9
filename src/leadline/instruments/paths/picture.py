"""Paths by length: a table in the terminal, and a picture of how their sizes fall.

On a narrow terminal the columns of sampling go first, then the number of paths, then the size.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from leadline.instruments.paths.result import heading, remarks_of, table_of
from leadline.instruments.paths.text import answer, most_important
from leadline.reading.show.columns import Column, print_line, show_table
from leadline.reading.show.line_chart import line_chart
from leadline.reading.show.panels import Line

if TYPE_CHECKING:
    from rich.console import Console

    from leadline.instruments.paths.result import Paths

__all__ = ["picture_of_paths", "show_paths"]


MOST_ROWS = 15
"""How many lengths the first screen has room for."""


def show_paths(paths: Paths, console: Console, *, everything: bool = False) -> None:
    """Print the answer, the heading, a row per length, the remainder and the remarks.

    Without `everything` the table has the lengths with the largest shares.
    """
    for sentence in answer(paths):
        print_line(console, sentence, style="bold")
    print_line(console)
    for line in heading(paths):
        print_line(console, line)
    print_line(console)
    headers, rows = table_of(paths)
    count = len(rows)
    if not everything:
        rows = most_important(paths, rows, MOST_ROWS)
    columns = [
        Column(header, [row[at] for row in rows], "right" if at else "left")
        for at, header in enumerate(headers)
    ]
    exact = [c for c in columns if c.title not in ("residual of a path", "error of sampling")]
    uncounted = [column for column in exact if column.title != "paths"]
    shares = [column for column in uncounted if column.title != "|Z|/|X|"]
    layouts = [columns, columns, exact, uncounted, shares]
    show_table(layouts, console, gaps=(2, 1, 1, 1, 1))
    if len(rows) < count:
        print_line(console, f"({len(rows)} of {count} rows, the largest shares; --all shows all)")
    print_line(console)
    for line in remarks_of(paths):
        print_line(console, line)


def picture_of_paths(paths: Paths) -> str:
    """Draw log10 of |Z| / |X| over the length, for output, residual and logits, as SVG.

    The axis of the chart counts from 1, so a path without a hop stands at 1.
    """
    tensors = {"output": paths.output, "residual": paths.residual, "logits": paths.logits}
    lines = [
        Line(panel=paths.model, name=name, values=tuple(map(_log10, shares.norm_share)))
        for name, shares in tensors.items()
        if shares is not None
    ]
    return line_chart(
        lines,
        title="Size of all paths of one length",
        value_label="log10 of |Z| / |X|",
        layer_label="hops",
        start=0,
    )


def _log10(value: float) -> float:
    return math.log10(value) if value > 0 else -math.inf
