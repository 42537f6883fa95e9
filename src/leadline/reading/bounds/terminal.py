"""Bounds in the terminal: violations first and red, then a row per bound or per head, then reasons.

On a narrow terminal the statements stand below the table, and places are shortened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline.reading.bounds.text import (
    applies_text,
    legend,
    measured_range,
    place_text,
    predicted_range,
    ratio_text,
    reasons,
    size_text,
    title_of,
    violations,
    which_places_differ,
)
from leadline.reading.show.columns import Column, print_line, show_table

if TYPE_CHECKING:
    from rich.console import Console

    from leadline.reading.bounds.table import BoundAtHead, BoundResult, BoundsTable

__all__ = ["show_bounds"]

_RED = "bold red"


def show_bounds(table: BoundsTable, console: Console, *, heads: bool = False) -> None:
    """Print a row per bound, or with `heads` a row per bound and head.

    Bounds on rank collapse and laws of depth have tables of their own, with a row per layer.
    """
    for at, family in enumerate(table.families()):
        if at:
            print_line(console)
        _show_family(family, console, heads=heads)


def _show_family(table: BoundsTable, console: Console, *, heads: bool) -> None:
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
    if sentences := reasons(table):
        print_line(console)
    for sentence in sentences:
        print_line(console, sentence)


def _show_summary(table: BoundsTable, console: Console) -> None:
    differing = which_places_differ(table)
    results = table.bounds
    closest = [bound.closest for bound in results]
    name = Column("bound", [bound.label for bound in results], style="bold")
    statement = Column("statement", [bound.statement for bound in results])
    applies = Column("applies to", [applies_text(bound) for bound in results])
    numbers = [
        Column("predicted", [predicted_range(bound) for bound in results], "right"),
        Column("measured", [measured_range(bound) for bound in results], "right"),
        Column("ratio", [ratio_text(b, b.closest) for b in results], "right"),
    ]
    brief_title = "at layer/head" if any(b.family == "attention" for b in results) else "at layer"

    def place(*, brief: bool) -> Column:
        title = brief_title if brief else "at"
        cells = ["" if row is None else place_text(row, differing, brief=brief) for row in closest]
        return Column(title, cells)

    count = [f"{len(bound.applying)}/{len(bound.rows)}" for bound in results]
    layouts = [
        [name, statement, applies, *numbers, place(brief=False)],
        [name, applies, *numbers, place(brief=False)],
        [name, Column("applies", count, "right"), *numbers, place(brief=True)],
        [name, Column("applies", count, "right"), *numbers, place(brief=True)],
        [name, Column("applies", count, "right"), *numbers],
        [name, Column("applies", count, "right"), numbers[0], numbers[2]],
    ]
    styles = [_RED if bound.violations else "" for bound in results]
    shown = show_table(layouts, console, gaps=(2, 2, 2, 1, 1, 1), row_styles=styles)
    print_line(console)
    print_line(console, legend(table), style="dim")
    if statement not in shown:
        print_line(console)
        show_table([[name, statement]], console, gaps=(2,))


def _show_heads(table: BoundsTable, console: Console) -> None:
    differing = which_places_differ(table)
    rows = [(bound, row) for bound in table.bounds for row in bound.rows]
    # What is known of one head stands together; the sort keeps the order of the bounds.
    stacks = list(dict.fromkeys(row.stack for _, row in rows))
    rows.sort(key=lambda pair: (stacks.index(pair[1].stack), *_inside_stack(pair[1])))
    head_rows = [row for _, row in rows]
    name = Column("bound", [bound.label for bound, _ in rows], style="bold")
    predicted = Column("predicted", [_text(b, row.predicted) for b, row in rows], "right")
    measured = Column("measured", [_text(b, row.measured) for b, row in rows], "right")
    rest = [
        Column("ratio", [ratio_text(bound, row) for bound, row in rows], "right"),
        Column("applies", [_applies(row) for row in head_rows]),
    ]
    interval = Column("certified", [_interval(bound, row) for bound, row in rows])
    full = Column("at", [place_text(row, differing) for row in head_rows])
    by_head = any(bound.family == "attention" for bound in table.bounds)
    brief_title = "layer/head" if by_head else "layer"
    brief = Column(brief_title, [place_text(row, differing, brief=True) for row in head_rows])
    layouts = [
        [full, name, predicted, measured, interval, *rest],
        [full, name, predicted, measured, *rest],
        [brief, name, predicted, measured, *rest],
        [brief, name, predicted, measured, *rest],
        [Column("at", brief.cells), name, predicted, measured, rest[1]],
    ]
    styles = [_RED if row.violated else "" for row in head_rows]
    show_table(layouts, console, gaps=(2, 2, 2, 1, 1), row_styles=styles)
    print_line(console)
    print_line(console, legend(table), style="dim")


def _inside_stack(row: BoundAtHead) -> tuple[int, int, str, int]:
    return row.layer, row.sublayer or 0, row.point, row.head or 0


def _applies(row: BoundAtHead) -> str:
    return "VIOLATED" if row.violated else "yes" if row.applies else "no"


def _interval(bound: BoundResult, row: BoundAtHead) -> str:
    if row.lower is None or row.upper is None:
        return ""
    ends = (size_text(end, log10=bound.log10, digits=7) for end in (row.lower, row.upper))
    return f"[{', '.join(ends)}]"


def _text(bound: BoundResult, value: float | None) -> str:
    return "-" if value is None else size_text(value, log10=bound.log10)
