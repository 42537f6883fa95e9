"""The map of what trains in the terminal: rows by depths, usable depths, gauges, notes.

Green trains, red does not, grey was not measured; a mark says the same without colour. When the
terminal is narrow, seeds that agree are left out, then the spread over the seeds goes, then the
depths stand in several tables. Into a pipe: plain text with every column in full.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from leadline.reading.map.text import (
    MARKS,
    PLAIN_MARKS,
    depth_text,
    gauge_rows,
    gauge_title,
    map_title,
    notes,
    place_text,
    prediction_sentence,
    rules,
    spread_text,
    spread_title,
    unmeasured,
    usable_text,
)
from leadline.reading.show.columns import Column, print_line, show_table
from leadline.record.words.numbers import align, format_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from leadline.reading.map.places import MapPlace
    from leadline.reading.map.trainability import Trainability

__all__ = ["show_trainability"]

_STYLES = {True: "green", False: "red", None: "bright_black"}
_MOST_REASONS = 12


@dataclass(frozen=True, slots=True)
class _Cell:
    text: str
    style: str = ""


def show_trainability(training_map: Trainability, console: Console, *, titled: bool = True) -> None:
    """Print the rule, the map of the loss, that of the gauge, the gauges, and what is not there."""
    if titled:
        print_line(console, map_title(training_map), style="bold")
    for line in rules(training_map):
        print_line(console, line)
    if not training_map.rows:
        print_line(console, "No cell has ended yet.")
        return
    print_line(console)
    _show_map(training_map, console)
    _show_gauges(training_map, console)
    sentences = [prediction_sentence(training_map), *notes(training_map)]
    print_line(console)
    for line in sentences:
        if line:
            print_line(console, line)
    _show_reasons(training_map, console)


def _show_map(training_map: Trainability, console: Console) -> None:
    """Print the widest table that fits, and how to read it."""
    plans = ((False, True), (True, True), (True, False))
    layouts = [
        _loss_table(training_map, console, brief=brief, spread=spread) for brief, spread in plans
    ]
    brief, spread = plans[_show(layouts, console, gaps=(2, 2, 1))]
    marks = _marks(console)
    words = [
        f"{marks[True]} trains, {marks[False]} does not, {marks[None]} not measured",
        "median loss",
        "seeds that train of those measured" + (", where not all agree" if brief else ""),
        "? a hole",
    ]
    if spread:
        words.append(f"by seed: usable {training_map.axis} of {spread_title(training_map)}")
    print_line(console, "; ".join(words), style="dim")


def _loss_table(
    training_map: Trainability, console: Console, *, brief: bool, spread: bool
) -> list[list[_Cell]]:
    """The cells of the table: the name of the row, the usable depth, then the depths."""
    marks = _marks(console)
    head = [_Cell(training_map.axis, "dim"), _Cell("usable", "dim")]
    head += [_Cell("by seed", "dim")] if spread else []
    head += [_Cell(depth_text(depth), "dim") for depth in training_map.depths]
    rows = [head]
    for row in training_map.rows:
        cells = [_Cell(row.name, "bold"), _Cell(usable_text(row))]
        cells += [_Cell(spread_text(row))] if spread else []
        cells += [_place(place, brief=brief, marks=marks) for place in row.places]
        rows.append(cells)
    return rows


def _place(place: MapPlace | None, *, brief: bool, marks: dict[bool | None, str]) -> _Cell:
    text = place_text(place, brief=brief, marks=marks)
    return _Cell(text, "" if place is None else _STYLES[place.trains])


def _gauge_table(training_map: Trainability, gauge: str) -> list[list[_Cell]]:
    rows = [
        [
            _Cell(training_map.axis, "dim"),
            *(_Cell(depth_text(d), "dim") for d in training_map.depths),
        ]
    ]
    for row in training_map.rows:
        cells = [_Cell(row.name, "bold")]
        for place in row.places:
            value = None if place is None else place.gauges.get(gauge)
            style = "" if place is None else _STYLES[place.trains]
            cells.append(_Cell("" if value is None else format_number(value, digits=3), style))
        rows.append(cells)
    return rows


def _show_gauges(training_map: Trainability, console: Console) -> None:
    shown = training_map.shown
    if shown is None:
        return
    print_line(console)
    judged = "" if math.isnan(shown.auc) else f", AUC {shown.auc:.3f}"
    title = f"{gauge_title(shown.gauge)} at step {shown.step}, median over seeds{judged}"
    print_line(console, title, style="bold")
    _show([_gauge_table(training_map, shown.gauge)], console, gaps=(2,))
    rows = gauge_rows(training_map)
    print_line(console)
    columns = [
        Column(title, [row[at] for row in rows], "right" if at else "left")
        for at, title in enumerate(("gauge", "AUC at first step", "best AUC", "at step", "cells"))
    ]
    show_table([columns, columns, [*columns[:4]]], console, gaps=(2, 1, 1))


def _show(layouts: Sequence[list[list[_Cell]]], console: Console, *, gaps: Sequence[int]) -> int:
    """Print the first layout that fits and return its number.

    If none does, the last one is printed in parts, each with the first column.
    """
    if not console.is_terminal:
        for line in align([[cell.text for cell in row] for row in layouts[0]]):
            print_line(console, line)
        return 0
    for at, (rows, gap) in enumerate(zip(layouts, gaps, strict=True)):
        if sum(_widths(rows)) + gap * (len(rows[0]) - 1) <= console.width:
            _print(rows, console, gap=gap)
            return at
    rows, gap = layouts[-1], gaps[-1]
    widths = _widths(rows)
    room = console.width - widths[0] - gap
    start = 1
    while start < len(widths):
        stop = start + 1
        while stop < len(widths) and sum(widths[start : stop + 1]) + gap * (stop - start) <= room:
            stop += 1
        _print([[row[0], *row[start:stop]] for row in rows], console, gap=gap)
        start = stop
    return len(layouts) - 1


def _widths(rows: Sequence[Sequence[_Cell]]) -> list[int]:
    return [max(cell_len(row[at].text) for row in rows) for at in range(len(rows[0]))]


def _print(rows: Sequence[Sequence[_Cell]], console: Console, *, gap: int) -> None:
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, show_header=False)
    for _ in rows[0]:
        table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell.text, style=cell.style) for cell in row))
    console.print(table)


def _show_reasons(training_map: Trainability, console: Console) -> None:
    """Print why cells were not measured, equal reasons once."""
    groups: dict[tuple[str, str], list[str]] = {}
    for run, status, reason in unmeasured(training_map):
        groups.setdefault((status, reason), []).append(run)
    if groups:
        print_line(console)
    for (status, reason), runs in list(groups.items())[:_MOST_REASONS]:
        more = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
        print_line(console, f"{status}: {runs[0]}{more}: {reason}", style=_STYLES[None])
    if len(groups) > _MOST_REASONS:
        left = len(groups) - _MOST_REASONS
        print_line(console, f"... and {left} more reasons; --json gives all of them.")


def _marks(console: Console) -> dict[bool | None, str]:
    """Return marks that the output can carry."""
    try:
        "".join(MARKS.values()).encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return PLAIN_MARKS
    return MARKS
