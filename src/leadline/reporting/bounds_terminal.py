"""Bounds in the terminal: violations first and red, then a row per bound or per head, then reasons.

On a narrow terminal the statements stand below the table, and places are shortened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline.analysis.bounds_text import (
    applies_text,
    legend,
    measured_range,
    place_text,
    predicted_range,
    ratio_text,
    reasons,
    title_of,
    violations,
    which_places_differ,
)
from leadline.record.numbers import format_number
from leadline.reporting.columns import Column, print_line, show_table

if TYPE_CHECKING:
    from rich.console import Console

    from leadline.analysis.bounds_table import BoundAtHead, BoundsTable

__all__ = ["show_bounds"]

_RED = "bold red"


def show_bounds(table: BoundsTable, console: Console, *, heads: bool = False) -> None:
    """Print a row per bound, or with `heads` a row per bound and head."""
    print_line(console, title_of(table), style="bold")
    print_line(console)
    if table.violated:
        for sentence in violations(table):
            print_line(console, sentence, style=_RED)
        print_line(console)
    if not table.bounds:
        print_line(console, "There are no bounds to compare with.")
        return
    if heads:
        _show_heads(table, console)
    else:
        _show_summary(table, console)
    if told := reasons(table):
        print_line(console)
    for sentence in told:
        print_line(console, sentence)


def _show_summary(table: BoundsTable, console: Console) -> None:
    told = which_places_differ(table)
    found = table.bounds
    closest = [bound.closest for bound in found]
    name = Column("bound", [bound.name for bound in found], style="bold")
    statement = Column("statement", [bound.statement for bound in found])
    applies = Column("applies to", [applies_text(bound) for bound in found])
    numbers = [
        Column("predicted", [predicted_range(bound) for bound in found], "right"),
        Column("measured", [measured_range(bound) for bound in found], "right"),
        Column("ratio", [ratio_text(row) for row in closest], "right"),
    ]

    def place(*, brief: bool) -> Column:
        title = "at layer/head" if brief else "at"
        cells = ["" if row is None else place_text(row, told, brief=brief) for row in closest]
        return Column(title, cells)

    count = [f"{len(bound.applying)}/{len(bound.rows)}" for bound in found]
    layouts = [
        [name, statement, applies, *numbers, place(brief=False)],
        [name, applies, *numbers, place(brief=False)],
        [name, Column("applies", count, "right"), *numbers, place(brief=True)],
        [name, Column("applies", count, "right"), *numbers, place(brief=True)],
        [name, Column("applies", count, "right"), *numbers],
        [name, Column("applies", count, "right"), numbers[0], numbers[2]],
    ]
    styles = [_RED if bound.violations else "" for bound in found]
    shown = show_table(layouts, console, gaps=(2, 2, 2, 1, 1, 1), row_styles=styles)
    print_line(console)
    print_line(console, legend(table), style="dim")
    if statement not in shown:
        print_line(console)
        show_table([[name, statement]], console, gaps=(2,))


def _show_heads(table: BoundsTable, console: Console) -> None:
    told = which_places_differ(table)
    rows = [(bound, row) for bound in table.bounds for row in bound.rows]
    # What is known of one head stands together; the sort keeps the order of the bounds.
    stacks = list(dict.fromkeys(row.stack for _, row in rows))
    rows.sort(key=lambda pair: (stacks.index(pair[1].stack), *_inside_stack(pair[1])))
    found = [row for _, row in rows]
    name = Column("bound", [bound.name for bound, _ in rows], style="bold")
    predicted = Column("predicted", [_text(row.predicted) for row in found], "right")
    measured = Column("measured", [_text(row.measured) for row in found], "right")
    rest = [
        Column("ratio", [ratio_text(row) for row in found], "right"),
        Column("applies", [_applies(row) for row in found]),
    ]
    interval = Column("certified", [_interval(row) for row in found])
    full = Column("at", [place_text(row, told) for row in found])
    brief = Column("layer/head", [place_text(row, told, brief=True) for row in found])
    layouts = [
        [full, name, predicted, measured, interval, *rest],
        [full, name, predicted, measured, *rest],
        [brief, name, predicted, measured, *rest],
        [brief, name, predicted, measured, *rest],
        [Column("at", brief.cells), name, predicted, measured, rest[1]],
    ]
    styles = [_RED if row.violated else "" for row in found]
    show_table(layouts, console, gaps=(2, 2, 2, 1, 1), row_styles=styles)
    print_line(console)
    print_line(console, legend(table), style="dim")


def _inside_stack(row: BoundAtHead) -> tuple[int, int, str, int]:
    return row.layer, row.sublayer or 0, row.point, row.head or 0


def _applies(row: BoundAtHead) -> str:
    return "VIOLATED" if row.violated else "yes" if row.applies else "no"


def _interval(row: BoundAtHead) -> str:
    if row.lower is None or row.upper is None:
        return ""
    return f"[{format_number(row.lower, digits=7)}, {format_number(row.upper, digits=7)}]"


def _text(value: float | None) -> str:
    return "-" if value is None else format_number(value)
