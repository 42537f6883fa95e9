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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

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
from leadline.reading.show.layout import layout_over_depth
from leadline.reading.show.palette import point_colour, record_colour
from leadline.reading.show.traces import plotly_text
from leadline.reading.show.wording import number
from leadline.record import Quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.reading.bounds.chart_lines import AttentionPlace, ChartLine
    from leadline.reading.bounds.table import BoundAtHead, BoundResult, BoundsTable
    from leadline.record import Record
    from leadline.record.rows.quantity import AxisScale

__all__ = ["BoundsChart", "KeyRow", "draw_bounds_charts"]

NORM = "attention.spectral_norm"
ROOM = 1.06
"""How far above the largest possible norm the axis ends."""
LOG_FROM = 5.0
"""The scale is logarithmic where the axis spans more than this factor."""
_DASHES = ("dash", "dashdot", "longdash")
_HUES = 7
"""How many colours the palette has for records."""
_HOVER = 46
"""Letters in a row of the hover box, so that it fits a phone."""

KeyKind = Literal["measured", "applies", "fails"]


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One row of the key, and how its line looks. `symbol` is empty where it has no markers."""

    label: str
    detail: str
    kind: KeyKind
    colour: str
    dash: str = "solid"
    symbol: str = ""
    width: float = 2.0

    @property
    def shown(self) -> bool:
        """Whether it is drawn at first."""
        return self.kind != "fails"


@dataclass(frozen=True, slots=True)
class BoundsChart:
    """A figure, its key and what the page says beside it. `limits` are the ends of the axis.

    `cut` says which bounds lie beyond them.
    """

    key: str
    title: str
    symbol: str
    scale: AxisScale
    limits: tuple[float, float]
    rows: tuple[KeyRow, ...]
    figure: dict[str, Any]
    cut: str

    @property
    def spoken(self) -> str:
        """The chart in words."""
        lines = "; ".join(f"{row.label}: {row.detail}" for row in self.rows if row.shown)
        return f"Attention and its bounds over depth, {self.title}. {lines}"


def draw_bounds_charts(record: Record, table: BoundsTable, *, key: str) -> list[BoundsChart]:
    """Draw a chart for every attention role of every stack; `key` begins their identifiers."""
    return [
        _draw(record, table, place, key=f"{key}-{at}")
        for at, place in enumerate(attention_places(record), start=1)
    ]


def _draw(record: Record, table: BoundsTable, place: AttentionPlace, *, key: str) -> BoundsChart:
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
    norm = record.quantities.get(NORM) or Quantity(NORM, "Spectral norm", "‖A‖_2", "")
    axis = Quantity("bounds", norm.title, norm.symbol, "", scale=scale)
    layout = layout_over_depth(axis, ("",), [])
    first, last = place.sublayers[0].layer, place.sublayers[-1].layer
    margin = 0.03 * (last - first) or 0.5
    layout["xaxis"]["range"] = [first - margin, last + margin]
    return BoundsChart(
        key=key,
        title=place.title,
        symbol=norm.symbol,
        scale=scale,
        # Both ends must be positive: the reader may switch to a logarithmic scale.
        limits=(bottom / ROOM if bottom > 0 else min(1.0, top) / 2, top),
        rows=tuple(pen.rows),
        figure={"data": pen.traces, "layout": layout},
        cut=_cut(above, top, place.queries),
    )


class _BoundsPen:
    """Collects the traces, the rows of the key and the heights of what was drawn."""

    def __init__(self, *, depth: int) -> None:
        self.depth = depth
        self.rows: list[KeyRow] = []
        self.traces: list[dict[str, Any]] = []
        self.heights: list[float] = []

    def row(self, row: KeyRow) -> None:
        """Begin a series: the traces that follow belong to it."""
        self.rows.append(row)

    def trace(self, line: ChartLine, name: str, *, sign: str = "=") -> dict[str, Any]:
        """Add a line to the series begun last, and return its trace."""
        row = self.rows[-1]
        alone = len(line) == 1  # a line of one point would not be seen
        trace: dict[str, Any] = {
            "type": "scatter",
            "mode": "lines+markers" if row.symbol or alone else "lines",
            "name": plotly_text(name),
            "x": [point.layer for point in line],
            "y": [point.value if math.isfinite(point.value) else None for point in line],
            "customdata": [
                [f"layer {p.layer}", number(p.value, digits=4), plotly_text(_folded(p.note))]
                for p in line
            ],
            "hovertemplate": (
                f"<b>%{{customdata[0]}}</b><br>{plotly_text(name)} {sign} "
                "<b>%{customdata[1]}</b><br>%{customdata[2]}<extra></extra>"
            ),
            "connectgaps": False,
            "visible": True if row.shown else "legendonly",
            "line": {"color": row.colour, "dash": row.dash, "width": row.width},
            "marker": {"color": row.colour, "symbol": row.symbol or "circle", "size": 6},
            "meta": {
                "series": len(self.rows) - 1,
                "statistic": "value",
                "depth": max(self.depth, 1),
                "heading": name,
            },
        }
        self.traces.append(trace)
        self.heights += [point.value for point in line if math.isfinite(point.value)]
        return trace


def _draw_norms(record: Record, place: AttentionPlace, pen: _BoundsPen) -> None:
    """Draw the mean over heads, the band of the heads, and the largest head."""
    means, tops = head_readings(record, NORM, "mean"), head_readings(record, NORM, "max")
    colour = point_colour(place.sublayers[0].point)
    if middle := head_mean(means, place):
        label = "mean over heads"
        pen.row(KeyRow(label, _span(middle), "measured", colour, symbol="circle"))
        pen.trace(middle, label)
    low = head_edge(means, place, smallest=True)
    if low:
        high = head_edge(means, place, smallest=False)
        detail = f"{_span([*low, *high])}, shaded"
        pen.row(KeyRow("smallest to largest head", detail, "measured", colour, width=0.5))
        pen.trace(low, "smallest head")
        pen.trace(high, "largest head").update(fill="tonexty", fillcolor=f"{colour}2b")
    if top := largest_reading(tops, place):
        label = "largest head and example"
        detail = f"{_span(top)}, with its certified interval"
        pen.row(KeyRow(label, detail, "measured", colour, symbol="diamond-open", width=1))
        pen.trace(top, label)["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [point.above for point in top],
            "arrayminus": [point.below for point in top],
            "color": colour,
            "thickness": 1.5,
            "width": 4,
        }


def _draw_other(record: Record, place: AttentionPlace, quantity: str, pen: _BoundsPen) -> None:
    """Draw another quantity that a bound is about: its largest over the examples."""
    line = largest_reading(head_readings(record, quantity, "max"), place)
    if line:
        title = record.quantities[quantity].title
        colour = record_colour(sum(row.symbol == "square" for row in pen.rows))
        pen.row(KeyRow(title, _span(line), "measured", colour, symbol="square"))
        pen.trace(line, title)


def _draw_bound(
    bound: BoundResult, place: AttentionPlace, pen: _BoundsPen, hues: Sequence[int]
) -> list[float]:
    """Draw what a bound predicts; return its finite values where it applies."""
    rows = place.rows(bound)
    line = predicted_line(bound, rows)
    if not line:
        return []
    nth = sum(row.kind != "measured" for row in pen.rows)
    applies = any(row.applies for row in rows)
    pen.row(
        KeyRow(
            label=bound.name,
            detail=_detail(bound, rows, line),
            kind="applies" if applies else "fails",
            colour=record_colour(hues[nth % len(hues)]),
            dash=_DASHES[nth // len(hues) % len(_DASHES)] if applies else "dot",
            width=2.0 if applies else 1.2,
        )
    )
    pen.trace(line, bound.name, sign="≤" if bound.side == "upper" else "≥")
    return [point.value for point in line if applies and not math.isnan(point.value)]


def _detail(bound: BoundResult, rows: Sequence[BoundAtHead], line: ChartLine) -> str:
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


def _span(line: ChartLine) -> str:
    return number_range(point.value for point in line)


def _folded(text: str) -> str:
    """Break a note between words, so that the hover box fits a phone."""
    rows = [""]
    for word in text.split():
        if rows[-1] and len(rows[-1]) + len(word) >= _HOVER:
            rows.append("")
        rows[-1] = f"{rows[-1]} {word}".strip()
    return "\n".join(rows)
