"""One Plotly figure per quantity, as plain dictionaries.

A figure has depth on its horizontal axis and one line for every record, point and statistic. One
record: the colour says the point (stream, attention, mlp, ...). Several records: the colour says
the record and the marker says the point. The dash says the statistic either way. Records with
several stacks get one panel per stack, all panels on one vertical scale.

    plotly.graph_objects.Figure(quantity_figure([record], "stream.norm")).show()
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leadline.errors import LeadlineError, UnknownName
from leadline.reading.show.layout import layout_over_depth
from leadline.reading.show.palette import dash_of, point_colour, record_colour, symbol_of
from leadline.reading.show.traces import (
    LineStyle,
    gap_sentences,
    line_traces,
    module_paths,
)
from leadline.record.provenance import text_at
from leadline.record.rows.selection import group_into_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leadline.record import Profile, Quantity, Record

__all__ = ["Chart", "Series", "draw_charts", "quantity_figure", "record_names"]

_STATISTICS = ("value", "total", "mean", "median", "mean_without_first", "median_without_first")
_SHOWN_TOO = ("median_without_first", "mean_without_first")
_MOST_RANKS = 4
"""So many of the first ranks of a quantity are lines of one chart."""


@dataclass(frozen=True, slots=True)
class Series:
    """One row of a chart's key: a point, or a lane of the stream, of a stack of a record.

    `lines` holds its statistics, the headline first.
    """

    record: int
    panel: int
    label: str
    colour: str
    symbol: str
    lines: tuple[Profile, ...]

    @property
    def headline(self) -> Profile:
        """The line of the headline statistic."""
        return self.lines[0]


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure and what the page says beside it.

    `key` is an identifier of letters, digits and dashes. `panels` holds the titles of the panels,
    one empty title where there is a single panel. `statistics` begins with the headline, `shown`
    are those drawn at first. `gaps` has one sentence for every line with values that are not
    finite.
    """

    key: str
    quantity: Quantity
    panels: tuple[str, ...]
    series: tuple[Series, ...]
    statistics: tuple[str, ...]
    shown: tuple[str, ...]
    figure: dict[str, Any]
    gaps: tuple[str, ...]
    any_positive: bool


def record_names(records: Sequence[Record], names: Sequence[str] | None = None) -> list[str]:
    """Return one distinct name per record: the given ones, else the names of the models."""
    if names is not None and len(names) != len(records):
        raise LeadlineError(
            f"{len(records)} records came with {len(names)} names; give one name per record."
        )
    wanted = list(names) if names is not None else [_model_name(record) for record in records]
    distinct: list[str] = []
    for name in wanted:
        candidate, copy = name, 1
        while candidate in distinct:
            copy += 1
            candidate = f"{name} ({copy})"
        distinct.append(candidate)
    return distinct


def draw_charts(records: Sequence[Record], *, names: Sequence[str] | None = None) -> list[Chart]:
    """Draw every quantity that any of the records has, in the order of the records.

    Ingredients of bounds are left out, and numbers of a run, which have no depth.
    """
    known: dict[str, Quantity] = {}
    for record in records:
        for name, quantity in record.quantities.items():
            if not quantity.ingredient_of and quantity.over != "step":
                known.setdefault(name, quantity)
    titles = record_names(records, names)
    charts: list[Chart] = []
    for quantity in known.values():
        slug = re.sub(r"[^a-z0-9]+", "-", quantity.name.lower()).strip("-")
        chart = _draw(records, quantity, titles, key=f"chart-{len(charts) + 1}-{slug}")
        if chart.series:
            charts.append(chart)
    return charts


def quantity_figure(
    records: Sequence[Record], quantity: str, *, names: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return the Plotly figure of one quantity as a dictionary with `data` and `layout`."""
    for record in records:
        if quantity in record.quantities:
            definition = record.quantities[quantity]
            if definition.lives_on == "run":
                raise LeadlineError(
                    f"{quantity!r} belongs to a training run and has no depth to be drawn over; "
                    "leadline.reading.page.report shows it over steps."
                )
            titles = record_names(records, names)
            return _draw(records, definition, titles, key="chart").figure
    raise UnknownName("quantity", quantity, {n for record in records for n in record.quantities})


def _model_name(record: Record) -> str:
    known = record.provenance
    return text_at(known, "model", "name") or text_at(known, "sweep", "name") or "unnamed model"


def _draw(
    records: Sequence[Record], quantity: Quantity, names: Sequence[str], *, key: str
) -> Chart:
    lanes_by_record = [_lanes(record, quantity.name) for record in records]
    lines = [[line for lane in lanes.values() for line in lane] for lanes in lanes_by_record]
    several = len(records) > 1
    panels = _panels(lines)
    statistics = _statistics(quantity, lines)
    shown = statistics[:1]
    if shown == ("mean",) and not several:
        shown += tuple(one for one in _SHOWN_TOO if one in statistics)[:1]
    series: list[Series] = []
    data: list[dict[str, Any]] = []
    gaps: list[str] = []
    for index, (record, lanes) in enumerate(zip(records, lanes_by_record, strict=True)):
        modules = module_paths(record)
        rows = _rows(lanes, index, panels, statistics, several=several)
        if not several:
            rows += _rows_beside(record, quantity, panels, statistics)
        for row in rows:
            name = f"{names[index]} {row.label}".strip() if several else row.label
            for profile in row.lines:
                style = LineStyle(
                    series=len(series),
                    name=name,
                    record=names[index] if several else "",
                    panel=row.panel,
                    panels=len(panels),
                    depth=record.depth(profile.stack),
                    colour=row.colour,
                    dash=dash_of(profile.statistic, headline=statistics[0]),
                    symbol=row.symbol,
                    visible=profile.statistic in shown,
                )
                data += line_traces(profile, quantity, style, modules=modules)
                gaps += gap_sentences(profile, f"{panels[row.panel]} {name}".strip())
            series.append(row)
    return Chart(
        key=key,
        quantity=quantity,
        panels=panels,
        series=tuple(series),
        statistics=statistics,
        shown=shown,
        figure={"data": data, "layout": layout_over_depth(quantity, panels, lines)},
        gaps=tuple(gaps),
        any_positive=any(bool((p.values > 0).any()) for profiles in lines for p in profiles),
    )


def _lanes(record: Record, quantity: str) -> dict[int | None, list[Profile]]:
    """The lines of a quantity by lane; those of no lane in particular stand under None."""
    if quantity not in record.quantities:
        return {}
    readings = record.select(quantity)
    numbers = sorted({r.site.lane for r in readings if r.site.lane is not None})
    by_lane: dict[int | None, list[Profile]] = {None: record.profiles(quantity)}
    if numbers:
        run, step = readings[0].run, max(reading.step for reading in readings)
        last_readings = [
            r for r in readings if (r.run, r.step, r.site.sublayer) == (run, step, None)
        ]
        for lane in (None, *numbers):
            by_lane[lane] = group_into_lines(r for r in last_readings if r.site.lane == lane)
    order = record.stacks
    return {
        lane: sorted(lines, key=lambda line: order.index(line.stack))
        for lane, lines in by_lane.items()
    }


def _panels(lines: Sequence[Sequence[Profile]]) -> tuple[str, ...]:
    """One panel for all where every record has one stack, else one panel per stack."""
    stacks_of = [list(dict.fromkeys(profile.stack for profile in line)) for line in lines]
    if all(len(stacks) <= 1 for stacks in stacks_of):
        return ("",)
    return tuple(dict.fromkeys(stack for stacks in stacks_of for stack in stacks))


def _statistics(quantity: Quantity, lines: Sequence[Sequence[Profile]]) -> tuple[str, ...]:
    statistics = dict.fromkeys(profile.statistic for line in lines for profile in line)
    order = (quantity.headline, *_STATISTICS)
    return tuple(
        sorted(statistics, key=lambda one: order.index(one) if one in order else len(order))
    )


def _rows(
    lanes: Mapping[int | None, Sequence[Profile]],
    record: int,
    panels: Sequence[str],
    statistics: Sequence[str],
    *,
    several: bool,
) -> list[Series]:
    """Group the lines of one record into rows of the key."""
    groups: dict[tuple[str, str, int | None, int | None], list[Profile]] = {}
    for lane, profiles in lanes.items():
        for line in profiles:
            groups.setdefault((line.stack, line.point, line.sublayer, lane), []).append(line)
    rows: list[Series] = []
    for (stack, point, sublayer, lane), group in groups.items():
        twins = [one for one in groups if (one[0], one[1], one[3]) == (stack, point, lane)]
        nth = twins.index((stack, point, sublayer, lane))
        label = point if len(twins) == 1 else f"{point} (write {sublayer})"
        if lane is not None:
            label = f"lane {lane}"
        elif several and label in ("stream", "block"):
            label = ""
        colour = point_colour(point) if lane is None else record_colour(lane - 1)
        rows.append(
            Series(
                record=record,
                panel=panels.index(stack) if stack in panels else 0,
                label=label,
                colour=record_colour(record) if several else colour,
                symbol=symbol_of(point, lane=lane) + ("-open" if nth else ""),
                lines=tuple(sorted(group, key=lambda line: statistics.index(line.statistic))),
            )
        )
    return rows


def _rows_beside(
    record: Record, quantity: Quantity, panels: Sequence[str], statistics: Sequence[str]
) -> list[Series]:
    """What is drawn beside the lines of a single record: further ranks, or what they bound."""
    beside: list[tuple[str, list[Profile]]] = []
    if "rank" in quantity.axes:
        readings = [r for r in record.select(quantity.name) if r.site.sublayer is None]
        ranks = sorted({r.site.rank for r in readings if r.site.rank is not None})
        # The line without a rank is that of the first.
        for rank in ranks[1:_MOST_RANKS]:
            those = group_into_lines(r for r in readings if r.site.rank == rank)
            beside.append((f"rank {rank}", those))
    other = quantity.beside
    if other in record.quantities:
        title = record.quantities[other].title
        beside.append((f"{title[:1].lower()}{title[1:]}", record.profiles(other)))
    rows: list[Series] = []
    # The first colours are those of the points.
    for at, (label, lines) in enumerate(beside, start=3):
        for stack in dict.fromkeys(line.stack for line in lines):
            drawn = [line for line in lines if line.stack == stack and line.statistic in statistics]
            if drawn:
                rows.append(
                    Series(
                        record=0,
                        panel=panels.index(stack) if stack in panels else 0,
                        label=label,
                        colour=record_colour(at),
                        symbol=symbol_of(drawn[0].point, lane=at),
                        lines=tuple(
                            sorted(drawn, key=lambda line: statistics.index(line.statistic))
                        ),
                    )
                )
    return rows
