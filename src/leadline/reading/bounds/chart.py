"""The chart of attention and its bounds: what was measured over depth, and what is predicted.

One chart per attention role of a stack. Measured: the mean over the heads, the band from the
smallest to the largest head (each head's mean over the examples), and the largest head on its
largest example with its certified interval, which is the number that bounds are about. Predicted:
a line per bound, the largest over the heads. Where a bound does not apply its line is dotted, and
hidden until it is asked for.

No matrix of m rows that each sum to at most one has a norm above sqrt(m). The vertical axis ends
a little above that, so that a bound of 10^20 does not flatten the rest.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from leadline.reading.bounds.attention_facts import head_readings
from leadline.reading.bounds.chart_lines import (
    attention_places,
    head_edge,
    head_mean,
    largest_reading,
    number_range,
    predicted_line,
)
from leadline.reading.bounds.text import reasons_of
from leadline.reading.show.chart import Chart, ChartLine, KeyRow
from leadline.reading.show.palette import point_colour, record_colour
from leadline.reading.show.wording import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.reading.bounds.chart_lines import AttentionPlace, PointsOfLine
    from leadline.reading.bounds.table import BoundAtHead, BoundResult, BoundsTable
    from leadline.record import Record
    from leadline.record.rows.quantity import AxisScale

__all__ = ["draw_bounds_charts"]

NORM = "attention.spectral_norm"
ROOM = 1.06
"""How far above the largest possible norm the axis ends."""
LOG_FROM = 5.0
"""The scale is logarithmic where the axis spans more than this factor."""
_DASHES = ("dash", "dashdot", "longdash")
_HUES = 7
"""How many colours the palette has for records."""
_MEASURED, _APPLIES, _FAILS = "Measured", "Bounds that apply", "Bounds that do not"
"""The groups of the key."""


def draw_bounds_charts(record: Record, table: BoundsTable, *, key: str) -> list[Chart]:
    """Draw a chart for every attention role of every stack; `key` begins their identifiers."""
    return [
        _draw(record, table, place, key=f"{key}-{at}")
        for at, place in enumerate(attention_places(record), start=1)
    ]


def _draw(record: Record, table: BoundsTable, place: AttentionPlace, *, key: str) -> Chart:
    pen = _BoundsPen(depth=place.depth)
    _draw_norms(record, place, pen)
    for name in dict.fromkeys(b.quantity for b in table.bounds if b.quantity != NORM):
        _draw_other(record, place, name, pen)
    measured = [*pen.heights]
    hues = [at for at in range(_HUES) if record_colour(at) not in {r.colour for r in pen.rows}]
    above: dict[str, float] = {}
    floors: list[float] = []
    for bound in table.bounds:
        line = _draw_bound(bound, place, pen, hues)
        if bound.side == "lower":
            floors += line
        elif line:
            above[bound.name] = max(line)
    bottom = min([*measured, *floors], default=1.0)
    top = ROOM * max([*measured, math.sqrt(place.queries)])
    scale: AxisScale = "log" if bottom > 0 and top > LOG_FROM * bottom else "linear"
    norm = record.quantities.get(NORM)
    spoken = "; ".join(f"{row.label}: {row.details[0]}" for row in pen.rows if row.shown)
    return Chart(
        key=key,
        title=place.title,
        symbol="‖A‖_2" if norm is None else norm.symbol,
        scale=scale,
        rows=tuple(pen.rows),
        lines=tuple(pen.lines),
        spoken=f"Attention and its bounds over depth, {place.title}. {spoken}",
        # Both ends must be positive: the reader may switch to a logarithmic scale.
        limits=(bottom / ROOM if bottom > 0 else min(1.0, top) / 2, top),
        cut=_cut(above, top, place.queries),
    )


class _BoundsPen:
    """Collects the lines, the rows of the key and the heights of what was drawn."""

    def __init__(self, *, depth: int) -> None:
        self.depth = depth
        self.rows: list[KeyRow] = []
        self.lines: list[ChartLine] = []
        self.heights: list[float] = []

    def row(self, row: KeyRow) -> None:
        """Begin a series: the lines that follow belong to it."""
        self.rows.append(row)

    def line(self, points: PointsOfLine, heading: str, *, sign: str = "=") -> None:
        """Add a line to the series begun last."""
        certified = any(point.below or point.above for point in points)
        self.lines.append(
            ChartLine(
                series=len(self.rows) - 1,
                heading=heading,
                x=tuple(point.layer for point in points),
                values=tuple(point.value for point in points),
                depth=max(self.depth, 1),
                words=sign,
                notes=tuple(point.note for point in points),
                below=tuple(point.below for point in points) if certified else (),
                above=tuple(point.above for point in points) if certified else (),
            )
        )
        self.heights += [point.value for point in points if math.isfinite(point.value)]


def _draw_norms(record: Record, place: AttentionPlace, pen: _BoundsPen) -> None:
    """Draw the mean over heads, the band of the heads, and the largest head."""
    means, tops = head_readings(record, NORM, "mean"), head_readings(record, NORM, "max")
    colour = point_colour(place.sublayers[0].point)
    if middle := head_mean(means, place):
        label = "mean over heads"
        pen.row(KeyRow(label, (_span(middle),), colour, symbol="circle", group=_MEASURED))
        pen.line(middle, label)
    low = head_edge(means, place, smallest=True)
    if low:
        high = head_edge(means, place, smallest=False)
        details = (f"{_span([*low, *high])}, shaded",)
        label = "smallest to largest head"
        pen.row(KeyRow(label, details, colour, width=0.5, group=_MEASURED, band=True))
        pen.line(low, "smallest head")
        pen.line(high, "largest head")
    if top := largest_reading(tops, place):
        label = "largest head and example"
        details = (f"{_span(top)}, with its certified interval",)
        pen.row(KeyRow(label, details, colour, symbol="diamond-open", width=1, group=_MEASURED))
        pen.line(top, label)


def _draw_other(record: Record, place: AttentionPlace, quantity: str, pen: _BoundsPen) -> None:
    """Draw another quantity that a bound is about: its largest over the examples."""
    line = largest_reading(head_readings(record, quantity, "max"), place)
    if line:
        title = record.quantities[quantity].title
        colour = record_colour(sum(row.symbol == "square" for row in pen.rows))
        pen.row(KeyRow(title, (_span(line),), colour, symbol="square", group=_MEASURED))
        pen.line(line, title)


def _draw_bound(
    bound: BoundResult, place: AttentionPlace, pen: _BoundsPen, hues: Sequence[int]
) -> list[float]:
    """Draw what a bound predicts; return its finite values where it applies."""
    rows = place.rows(bound)
    line = predicted_line(bound, rows)
    if not line:
        return []
    nth = sum(row.group != _MEASURED for row in pen.rows)
    applies = any(row.applies for row in rows)
    pen.row(
        KeyRow(
            label=bound.name,
            details=(_detail(bound, rows, line),),
            colour=record_colour(hues[nth % len(hues)]),
            dash=_DASHES[nth // len(hues) % len(_DASHES)] if applies else "dot",
            width=2.0 if applies else 1.2,
            group=_APPLIES if applies else _FAILS,
            shown=applies,
        )
    )
    pen.line(line, bound.name, sign="≤" if bound.side == "upper" else "≥")
    return [point.value for point in line if applies and not math.isnan(point.value)]


def _detail(bound: BoundResult, rows: Sequence[BoundAtHead], line: PointsOfLine) -> str:
    """Say what is predicted, how close it is, and the first reason why it does not apply."""
    failing = [row for row in rows if not row.applies]
    words = [_span(line)]
    if len(failing) < len(rows):
        upper = bound.side == "upper"
        ratios = [row.ratio for row in rows if row.applies and not math.isnan(row.ratio)]
        if ratios:
            ends = ("up to", max(ratios)) if upper else ("from", min(ratios))
            words.append(f"ratio {ends[0]} {number(ends[1])}")
    if failing:
        first, *more = reasons_of(failing, counted=False)
        where = "" if len(failing) == len(rows) else f"not at {len(failing)} of {len(rows)}: "
        words.append(f"{where}{first}{f' and {len(more)} more' if more else ''}")
    return ", ".join(words)


def _cut(predicted: dict[str, float], top: float, queries: int) -> str:
    """Say which bounds lie above the end of the axis."""
    above = [f"{name} ({number(value)})" for name, value in predicted.items() if value > top]
    if not above:
        return ""
    return (
        f"The axis ends at {number(top)}, a little above √m = {number(math.sqrt(queries))}, "
        f"which no attention of m = {queries} queries exceeds. Beyond it reach: {', '.join(above)}."
    )


def _span(line: PointsOfLine) -> str:
    return number_range(point.value for point in line)
