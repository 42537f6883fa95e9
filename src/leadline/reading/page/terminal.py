"""Records and comparisons in the terminal.

On a terminal: a table that fits its width. When it is narrow, the shape over depth gets shorter,
then the lowest and highest values go, then the laws are shortened, then columns go. Into a pipe
or a file: plain text with every column in full, however long the lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from leadline.reading.compare.text import (
    about_the_runs,
    present_sides,
    ratio_text,
    shared_rows,
    what_is_not_shared,
)
from leadline.reading.map.cells import is_sweep
from leadline.reading.map.terminal import show_trainability
from leadline.reading.map.trainability import trainability
from leadline.reading.page.curves_terminal import bars_for, show_compared_curves, show_curves
from leadline.reading.show.columns import Column, print_line, show_table
from leadline.record.words.numbers import format_number, sparkline
from leadline.record.words.summary import cotangent_text, heading, remarks, summarize
from leadline.record.words.text import finding_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from leadline.reading.compare.compare import Comparison, ComparisonSide
    from leadline.record import Growth, Profile, Record
    from leadline.record.words.summary import SummaryRow

__all__ = ["show_comparison", "show_record"]


def show_record(record: Record, console: Console) -> None:
    """Print the heading with the findings, one row per quantity and role, and the remarks.

    Of a training run the curves over steps come first; of a sweep its map stands for them.
    """
    if warning := cotangent_text(record):
        print_line(console, warning, style=_SEVERITY["note"])
    title, *rest = heading(record)
    print_line(console, title, style="bold")
    for finding in record.findings:
        print_line(console, finding_text(finding), style=_SEVERITY[finding.severity])
    for line in rest:
        print_line(console, line)
    if is_sweep(record):
        print_line(console)
        show_trainability(trainability(record), console, titled=False)
    else:
        show_curves(record, console)
    rows = summarize(record)
    if rows:
        print_line(console)
        layouts = [_record_columns(rows, plan, console) for plan in _PLANS]
        columns = show_table(layouts, console, gaps=[plan.gap for plan in _PLANS])
        if any(cell.endswith(_WITHOUT_FIRST) for column in columns for cell in column.cells):
            print_line(console, f"{_WITHOUT_FIRST} without the first token", style="dim")
    below = remarks(record, rows)
    if below:
        print_line(console)
    for line in below:
        print_line(console, line)


def show_comparison(comparison: Comparison, console: Console) -> None:
    """Print a row per quantity, role and record, with the ratios to the first record."""
    print_line(console, " against ".join(comparison.names), style="bold")
    show_compared_curves(comparison, console)
    if shared_rows(comparison):
        print_line(console)
        layouts = [_comparison_columns(comparison, plan, console) for plan in _COMPARISON_PLANS]
        columns = show_table(layouts, console, gaps=[plan.gap for plan in _COMPARISON_PLANS])
        legend = f"ratio: to {comparison.names[0]} at the last layer"
        if any(column.title == "widest" for column in columns):
            legend += "; widest: at the layer where the two are farthest apart"
        print_line(console)
        print_line(console, legend, style="dim")
    below = [*about_the_runs(comparison), *what_is_not_shared(comparison)]
    if below:
        print_line(console)
    for line in below:
        print_line(console, line)


@dataclass(frozen=True, slots=True)
class _Plan:
    """How much of the table there is room for."""

    bars: int = 24
    ends: bool = True
    law: Literal["text", "brief"] = "text"
    goodness: bool = True
    shape: bool = True
    statistic: bool = True
    widest: bool = True
    gap: int = 2


# From the widest to the narrowest.
_PLANS = (
    _Plan(),
    _Plan(bars=12),
    _Plan(ends=False),
    _Plan(bars=12, ends=False),
    _Plan(bars=12, ends=False, law="brief"),
    _Plan(bars=12, ends=False, law="brief", gap=1),
    _Plan(bars=8, ends=False, law="brief", gap=1),
    _Plan(bars=8, ends=False, law="brief", gap=1, goodness=False),
    _Plan(bars=8, ends=False, law="brief", gap=1, goodness=False, statistic=False),
    _Plan(ends=False, law="brief", gap=1, goodness=False, statistic=False, shape=False),
)
_COMPARISON_PLANS = (
    _Plan(),
    _Plan(bars=12),
    _Plan(bars=12, law="brief"),
    _Plan(bars=12, law="brief", gap=1),
    _Plan(bars=8, law="brief", gap=1, goodness=False),
    _Plan(shape=False, law="brief", gap=1, goodness=False),
    _Plan(shape=False, law="brief", gap=1, goodness=False, widest=False),
)
_WITHOUT_FIRST = "*"
_SEVERITY = {"note": "yellow", "serious": "bold red"}


def _record_columns(rows: Sequence[SummaryRow], plan: _Plan, console: Console) -> list[Column]:
    lines = [row.profile for row in rows]
    columns = [
        Column(
            "quantity",
            [f"  {row.profile.statistic}" if row.companion else row.label for row in rows],
            style="bold",
        )
    ]
    if plan.statistic:
        columns.append(Column("stat", [_statistic(row, plan) for row in rows]))
    columns += [
        Column("first", [format_number(line.first) for line in lines], "right"),
        Column("last", [format_number(line.last) for line in lines], "right"),
    ]
    if plan.ends:
        columns += [
            Column("lowest @layer", [_extreme(line, lowest=True) for line in lines], "right"),
            Column("highest @layer", [_extreme(line, lowest=False) for line in lines], "right"),
        ]
    if plan.shape:
        drawn = [
            sparkline(row.profile.values, scale=row.scale, width=plan.bars, bars=bars_for(console))
            for row in rows
        ]
        columns.append(Column("by layer", drawn, style="cyan"))
    return columns + _growth_columns([row.growth for row in rows], plan)


def _comparison_columns(comparison: Comparison, plan: _Plan, console: Console) -> list[Column]:
    """Set the name of a quantity in a row of its own, and the records indented below it."""
    labels: list[str] = []
    sides: list[ComparisonSide | None] = []
    drawn: list[str] = []
    for row in shared_rows(comparison):
        labels.append(row.label)
        sides.append(None)
        drawn.append("")
        for name, side, shape in present_sides(
            comparison, row, width=plan.bars, bars=bars_for(console)
        ):
            labels.append(f"  {name}")
            sides.append(side)
            drawn.append(shape)
    columns = [
        Column("quantity", labels, style="bold"),
        Column("first", [format_number(side.first) if side else "" for side in sides], "right"),
        Column("last", [format_number(side.last) if side else "" for side in sides], "right"),
    ]
    if plan.shape:
        columns.append(Column("by layer", drawn, style="cyan"))
    columns += _growth_columns([side.growth if side else None for side in sides], plan)
    columns.append(Column("ratio", [_ratio_at_the_end(side) for side in sides], "right"))
    if plan.widest:
        columns.append(Column("widest", [_widest(side) for side in sides], "right"))
    return columns


def _growth_columns(growths: Sequence[Growth | None], plan: _Plan) -> list[Column]:
    if plan.law == "text":
        words = ["" if growth is None else growth.text for growth in growths]
        return [Column("growth", words)]
    words = ["" if growth is None else growth.brief for growth in growths]
    columns = [Column("growth", words)]
    if plan.goodness:
        columns.append(Column("R²", [_goodness(growth) for growth in growths], "right"))
    return columns


def _goodness(growth: Growth | None) -> str:
    if growth is None or growth.law in ("flat", "none"):
        return ""
    return f"{np.floor(growth.r2 * 1000) / 1000:.3f}"


def _statistic(row: SummaryRow, plan: _Plan) -> str:
    if row.companion:
        return ""
    name = row.profile.statistic
    return name if plan.law == "text" else name.replace("_without_first", _WITHOUT_FIRST)


def _extreme(line: Profile, *, lowest: bool) -> str:
    """Write the lowest or highest finite value and its layer: `4.01 @3`."""
    finite = np.isfinite(line.values)
    if not bool(np.any(finite)):
        return ""
    filled = np.where(finite, line.values, np.inf if lowest else -np.inf)
    at = int(np.argmin(filled) if lowest else np.argmax(filled))
    return f"{format_number(float(line.values[at]))} @{line.layers[at]}"


def _ratio_at_the_end(side: ComparisonSide | None) -> str:
    return "" if side is None or side.parting is None else ratio_text(side.ratio_at_last)


def _widest(side: ComparisonSide | None) -> str:
    if side is None or side.parting is None:
        return ""
    parting = side.parting
    how = ratio_text(parting.ratio) if np.isfinite(parting.ratio) else f"{parting.difference:+.3g}"
    return f"{how} @{parting.layer}"
