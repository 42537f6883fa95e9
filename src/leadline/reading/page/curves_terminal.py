"""Curves of training runs in the terminal: first and last value, shape over steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline.reading.compare.text import shared_curves, shown_curves
from leadline.reading.compare.training_curves import change_text
from leadline.reading.show.columns import Column, print_line, show_table
from leadline.record.run.curve import curve_rows
from leadline.record.words.numbers import BARS, PLAIN_BARS, format_number, sparkline
from leadline.record.words.text import MOST_RUNS, runs_left_out

if TYPE_CHECKING:
    from rich.console import Console

    from leadline.reading.compare.compare import Comparison
    from leadline.record import Record

__all__ = ["bars_for", "show_compared_curves", "show_curves"]

_WIDTHS = (24, 12, 8)


def show_curves(record: Record, console: Console) -> None:
    """Print a row per quantity of the run; of several runs, the validation loss of each."""
    curves = curve_rows(record)
    if not curves:
        return
    rows = curves[:MOST_RUNS]
    label = "run" if len(record.runs) > 1 else "of the run"
    name = Column(label, [row.label for row in rows], style="bold")
    ends = [
        Column("first", [format_number(row.curve.first) for row in rows], "right"),
        Column("last", [row.last for row in rows], "right"),
    ]
    shapes = [
        Column(
            "by step",
            [
                sparkline(row.curve.values, scale=row.scale, width=width, bars=bars_for(console))
                for row in rows
            ],
            style="cyan",
        )
        for width in _WIDTHS
    ]
    remark = Column("", [row.remark for row in rows])
    print_line(console)
    show_table(
        [
            [name, *ends, shapes[0], remark],
            [name, *ends, shapes[1], remark],
            [name, *ends, shapes[2]],
            [name, *ends],
        ],
        console,
        gaps=(2, 2, 1, 1),
    )
    for line in runs_left_out(len(curves)):
        print_line(console, line, style="dim")


def show_compared_curves(comparison: Comparison, console: Console) -> None:
    """Print a row per quantity and record, and how far each ends from the first record."""
    rows = shared_curves(comparison)
    if not rows:
        return
    labels: list[str] = []
    first: list[str] = []
    last: list[str] = []
    change: list[str] = []
    drawn: dict[int, list[str]] = {width: [] for width in _WIDTHS}
    for row in rows:
        labels.append(row.label)
        for column in (first, last, change, *drawn.values()):
            column.append("")
        for at, (name, curve, _) in enumerate(shown_curves(comparison, row)):
            labels.append(f"  {name}")
            first.append(format_number(curve.first))
            last.append(row.last_text(curve))
            change.append(change_text(row, curve))
            for width, column in drawn.items():
                shapes = shown_curves(comparison, row, width=width, bars=bars_for(console))
                column.append(shapes[at][2])
    name = Column("of the run", labels, style="bold")
    ends = [Column("first", first, "right"), Column("last", last, "right")]
    apart = Column("change", change, "right")
    layouts = [[name, *ends, Column("by step", drawn[w], style="cyan"), apart] for w in _WIDTHS]
    print_line(console)
    show_table([*layouts, [name, *ends, apart]], console, gaps=(2, 2, 1, 1))
    print_line(console)
    print_line(console, f"change: to {comparison.names[0]} at the last step", style="dim")


def bars_for(console: Console) -> str:
    """Return bars that the output can carry."""
    try:
        BARS.encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return PLAIN_BARS
    return BARS
