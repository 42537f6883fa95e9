"""A chart over depth for every quantity: one line for every record, point and statistic.

One record: the colour says the point (stream, attention, mlp, ...). Several records: the colour
says the record and the marker says the point. The dash says the statistic either way. Records with
several stacks get one panel per stack, all panels on one vertical scale.

For notebooks, a chart is also a Plotly figure:

    plotly.graph_objects.Figure(quantity_figure([record], "stream.norm")).show()
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from leadline.errors import LeadlineError, UnknownName
from leadline.reading.compare.names import distinct_names, name_records
from leadline.reading.show.chart import Chart, ChartLine, KeyRow
from leadline.reading.show.palette import dash_of, is_point, point_colour, record_colour, symbol_of
from leadline.reading.show.wording import axes_in_words, layer_ranges, number, statistic_in_words
from leadline.record.provenance import text_at
from leadline.record.rows.selection import group_into_lines
from leadline.record.run.scanned import CHECKPOINT, is_scan
from leadline.record.words.shape import shape_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leadline.record import Profile, Quantity, Record

__all__ = ["draw_charts", "quantity_figure", "record_names", "row_name"]

_STATISTICS = ("value", "total", "mean", "median", "mean_without_first", "median_without_first")
_SHOWN_TOO = ("median_without_first", "mean_without_first")
_MOST_RANKS = 4
"""So many of the first ranks of a quantity are lines of one chart."""
_APART = 0.2
"""The share by which a line must leave the headline to have its own law in the key."""


def record_names(records: Sequence[Record], names: Sequence[str] | None = None) -> list[str]:
    """Return one distinct name per record: the given ones, else the names of the models."""
    if names is not None and len(names) != len(records):
        raise LeadlineError(
            f"{len(records)} records came with {len(names)} names; give one name per record."
        )
    if names is not None:
        return list(distinct_names(names))
    unnamed = len(records) == 1 and not _model_name(records[0])
    if unnamed:
        return ["unnamed model"]
    if len(records) == 1:
        return [_model_name(records[0])]
    return list(name_records(records))


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
        if chart.rows:
            charts.append(chart)
    return charts


def quantity_figure(
    records: Sequence[Record], quantity: str, *, names: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return the Plotly figure of one quantity as a dictionary with `data` and `layout`."""
    from leadline.reading.page.plotly_figure import plotly_figure

    for record in records:
        if quantity in record.quantities:
            definition = record.quantities[quantity]
            if definition.over == "step":
                raise LeadlineError(
                    f"{quantity!r} belongs to a training run and has no depth to be drawn over; "
                    "leadline.reading.page.report shows it over steps."
                )
            titles = record_names(records, names)
            return plotly_figure(_draw(records, definition, titles, key="chart"), records)
    raise UnknownName("quantity", quantity, {n for record in records for n in record.quantities})


def row_name(row: KeyRow, panels: Sequence[str]) -> str:
    """The name of a row of the key, with its stack where a chart has several panels."""
    return f"{panels[row.panel]}, {row.label}" if panels[row.panel] else row.label


def _model_name(record: Record) -> str:
    known = record.provenance
    if is_scan(record):
        count = sum(key.startswith(CHECKPOINT) for key in known)
        return f"Scan of {count} checkpoint{'' if count == 1 else 's'}"
    return text_at(known, "model", "name") or text_at(known, "sweep", "name")


def _draw(
    records: Sequence[Record], quantity: Quantity, names: Sequence[str], *, key: str
) -> Chart:
    lanes_by_record = [_lanes(record, quantity) for record in records]
    profiles = [[line for lane in lanes.values() for line in lane] for lanes in lanes_by_record]
    several = len(records) > 1
    panels = _panels(profiles)
    statistics = _statistics(quantity, profiles)
    shown = statistics[:1]
    if shown == ("mean",) and not several:
        shown += tuple(one for one in _SHOWN_TOO if one in statistics)[:1]
    rows: list[KeyRow] = []
    lines: list[ChartLine] = []
    gaps: list[str] = []
    for index, (record, lanes) in enumerate(zip(records, lanes_by_record, strict=True)):
        pen = _RowPen(index, names[index] if several else "", panels, statistics, shown, quantity)
        pen.add_lanes(lanes)
        if not several:
            pen.add_beside(record, quantity)
        depths = {stack: record.depth(stack) for stack in record.stacks}
        for row in pen.rows:
            for profile in row.profiles:
                lines.append(
                    ChartLine(
                        series=len(rows),
                        heading=_heading(profile, row, panels),
                        x=profile.layers,
                        values=tuple(map(float, profile.values)),
                        statistic=profile.statistic,
                        panel=row.panel,
                        depth=max(1, depths[profile.stack]),
                        dash=dash_of(profile.statistic, headline=statistics[0]),
                        address=(index, "series", _identity(profile)),
                    )
                )
                gaps += _gap_sentences(profile, row_name(row, panels).replace(",", "", 1))
            rows.append(row)
    absent = [name for at, name in enumerate(names) if at not in {row.record for row in rows}]
    remarks = [("Not measured in", ", ".join(absent))] if absent else []
    spoken = "; ".join(f"{row.label}: {_law(row.headline, quantity, arrow=' to ')}" for row in rows)
    return Chart(
        key=key,
        title=quantity.title,
        symbol=quantity.symbol,
        scale=quantity.scale,
        rows=tuple(rows),
        lines=tuple(lines),
        spoken=f"{quantity.title} over {axes_in_words([quantity.over])}. {spoken}",
        name=quantity.name,
        topic=quantity.topic,
        leads=quantity.leads,
        across=quantity.over,
        unit=quantity.unit,
        logarithm=quantity.nats_per_unit > 0,
        panels=panels,
        statistics=statistics,
        shown=shown,
        gaps=tuple(gaps),
        meaning=(
            *remarks,
            ("Tells", quantity.meaning),
            ("High", quantity.high),
            ("Low", quantity.low),
        ),
        formulas=(("Formula", quantity.formula), ("Source", quantity.source)),
    )


def _identity(profile: Profile) -> tuple[object, ...]:
    """What tells a line from the others in the JSON of its record."""
    return (
        profile.quantity,
        profile.statistic,
        profile.stack,
        profile.point,
        profile.sublayer,
    )


def _lanes(record: Record, quantity: Quantity) -> dict[int | None, list[Profile]]:
    """The lines of a quantity by lane; those of no lane in particular stand under None."""
    if quantity.name not in record.quantities:
        return {}
    by_lane: dict[int | None, list[Profile]] = {None: record.profiles(quantity.name)}
    if "lane" in quantity.axes:
        readings = record.select(quantity.name, sublayer=None)
        run, step = readings[0].run, max(reading.step for reading in readings)
        last = [r for r in readings if (r.run, r.step) == (run, step)]
        lanes = sorted({r.site.lane for r in readings if r.site.lane is not None})
        for lane in (None, *lanes):
            by_lane[lane] = group_into_lines(r for r in last if r.site.lane == lane)
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


class _RowPen:
    """Collects the rows of the key for one record; `name` is empty where it is the only one."""

    def __init__(
        self,
        record: int,
        name: str,
        panels: Sequence[str],
        statistics: Sequence[str],
        shown: Sequence[str],
        quantity: Quantity,
    ) -> None:
        self.rows: list[KeyRow] = []
        self._record, self._name, self._panels = record, name, panels
        self._statistics, self._shown, self._quantity = statistics, shown, quantity

    def add_lanes(self, lanes: Mapping[int | None, Sequence[Profile]]) -> None:
        """Add the lines of the record itself, a row for every point or lane of a stack."""
        groups: dict[tuple[str, str, int | None, int | None], list[Profile]] = {}
        for lane, profiles in lanes.items():
            for line in profiles:
                groups.setdefault((line.stack, line.point, line.sublayer, lane), []).append(line)
        # Lines that are no points of a model, such as those of an experiment, are told by order.
        others = [one for one in dict.fromkeys(key[1] for key in groups) if not is_point(one)]
        for (stack, point, sublayer, lane), group in groups.items():
            twins = [one for one in groups if (one[0], one[1], one[3]) == (stack, point, lane)]
            nth = twins.index((stack, point, sublayer, lane))
            label = point if len(twins) == 1 else f"{point} (write {sublayer})"
            if lane is not None:
                label = f"lane {lane}"
            elif self._name and label in ("stream", "block"):
                label = ""
            number = lane
            if lane is None and len(others) > 1 and point in others:
                number = others.index(point) + 1
            colour = point_colour(point) if number is None else record_colour(number - 1)
            symbol = symbol_of(point, lane=number) + ("-open" if nth else "")
            self._add(label, group, record_colour(self._record) if self._name else colour, symbol)

    def add_beside(self, record: Record, quantity: Quantity) -> None:
        """Add what stands beside the lines of a single record: further ranks, what they bound."""
        beside: list[tuple[str, list[Profile]]] = []
        if "rank" in quantity.axes:
            readings = record.select(quantity.name, sublayer=None)
            ranks = sorted({r.site.rank for r in readings if r.site.rank is not None})
            several = len({line.point for line in record.profiles(quantity.name)}) > 1
            # The line without a rank is that of the first.
            for rank in ranks[1:_MOST_RANKS]:
                those = group_into_lines(r for r in readings if r.site.rank == rank)
                for point in dict.fromkeys(line.point for line in those):
                    label = f"{point}, rank {rank}" if several else f"rank {rank}"
                    beside.append((label, [line for line in those if line.point == point]))
        other = record.quantities.get(quantity.beside)
        if other is not None:
            label = f"{other.title[:1].lower()}{other.title[1:]}"
            beside.append((label, record.profiles(other.name)))
        # The first colours are those of the points.
        for at, (label, lines) in enumerate(beside, start=3):
            for stack in dict.fromkeys(line.stack for line in lines):
                here = [line for line in lines if line.stack == stack]
                drawn = [line for line in here if line.statistic in self._statistics]
                if drawn:
                    symbol = symbol_of(drawn[0].point, lane=at)
                    self._add(label, drawn, record_colour(at), symbol)

    def _add(self, label: str, profiles: Sequence[Profile], colour: str, symbol: str) -> None:
        lines = tuple(sorted(profiles, key=lambda one: self._statistics.index(one.statistic)))
        stack = lines[0].stack
        panel = self._panels.index(stack) if stack in self._panels else 0
        self.rows.append(
            KeyRow(
                ", ".join(word for word in (self._name, label) if word),
                tuple(
                    _law(line, self._quantity)
                    for line in lines
                    if line.statistic in self._shown and _tells_more(line, lines[0])
                ),
                colour,
                symbol=symbol,
                group=self._panels[panel],
                record=self._record,
                panel=panel,
                profiles=lines,
            )
        )


def _law(line: Profile, quantity: Quantity, *, arrow: str = " → ") -> str:
    """Where a line begins and ends, and its shape; of a single value the value."""
    words = "" if line.statistic == "value" else f"{statistic_in_words(line.statistic)} "
    if len(line) == 1:
        return f"{words}{number(line.first)} at {line.place(line.layers[0])}"
    shape = shape_text(line, scale=quantity.scale, logarithm=quantity.nats_per_unit > 0)
    ends = f"{words}{number(line.first)}{arrow}{number(line.last)}"
    return f"{ends}, {shape}" if shape else ends


def _tells_more(line: Profile, headline: Profile) -> bool:
    """True for the headline itself, and for a line that leaves it by more than a fifth."""
    if line is headline or line.layers != headline.layers:
        return True
    return any(
        not abs(mine - other) <= _APART * abs(other)
        for mine, other in zip(line.values, headline.values, strict=True)
    )


def _heading(profile: Profile, row: KeyRow, panels: Sequence[str]) -> str:
    stack = f"{profile.stack} " if len(panels) > 1 else ""
    words = "" if profile.statistic == "value" else f", {statistic_in_words(profile.statistic)}"
    return f"{stack}{row.label}{words}"


def _gap_sentences(profile: Profile, name: str) -> list[str]:
    """Say at which layers a line has values that are not finite."""
    kinds: dict[str, list[int]] = {}
    for layer, value in zip(profile.layers, profile.values, strict=True):
        if not math.isfinite(value):
            kinds.setdefault(number(float(value)), []).append(layer)
    return [
        f"{name}, {statistic_in_words(profile.statistic)}: {kind} at {layer_ranges(layers)}."
        for kind, layers in kinds.items()
    ]
