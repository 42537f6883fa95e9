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
from leadline.record.provenance import text_at
from leadline.reporting.palette import point_colour, record_colour, symbol_of
from leadline.reporting.traces import (
    LineStyle,
    gap_sentences,
    line_traces,
    module_paths,
    plotly_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.record import Profile, Quantity, Record

__all__ = ["Chart", "Series", "draw_charts", "quantity_figure", "record_names"]

_STATISTICS = ("mean", "value", "median", "mean_without_first", "median_without_first")
_SHOWN_TOO = "median_without_first"
_TICKS = 12


@dataclass(frozen=True, slots=True)
class Series:
    """One row of a chart's key: a point of a stack of a record, in all its statistics."""

    record: int
    panel: int
    point: str
    label: str
    colour: str
    symbol: str
    headline: Profile


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
    """Draw every quantity that any of the records has, in the order of the records."""
    known: dict[str, Quantity] = {}
    for record in records:
        for name, quantity in record.quantities.items():
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
            titles = record_names(records, names)
            return _draw(records, record.quantities[quantity], titles, key="chart").figure
    raise UnknownName("quantity", quantity, {n for record in records for n in record.quantities})


def _model_name(record: Record) -> str:
    return text_at(record.provenance, "model", "name") or "unnamed model"


def _draw(
    records: Sequence[Record], quantity: Quantity, names: Sequence[str], *, key: str
) -> Chart:
    lines = [
        record.profiles(quantity.name) if quantity.name in record.quantities else []
        for record in records
    ]
    several = len(records) > 1
    panels = _panels(lines)
    statistics = _statistics(quantity, lines)
    shown = tuple(
        statistic
        for statistic in statistics
        if statistic == statistics[0] or (statistic == _SHOWN_TOO and not several)
    )
    series: list[Series] = []
    data: list[dict[str, Any]] = []
    gaps: list[str] = []
    for index, (record, profiles) in enumerate(zip(records, lines, strict=True)):
        modules = module_paths(record)
        for row, group in _rows(profiles, index, panels, statistics, several=several):
            name = f"{names[index]} {row.label}".strip() if several else row.label
            for profile in group:
                style = LineStyle(
                    series=len(series),
                    name=name,
                    record=names[index] if several else "",
                    panel=row.panel,
                    panels=len(panels),
                    depth=record.depth(profile.stack),
                    colour=row.colour,
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
        figure={"data": data, "layout": _layout(quantity, panels, lines)},
        gaps=tuple(gaps),
        any_positive=any(bool((p.values > 0).any()) for profiles in lines for p in profiles),
    )


def _panels(lines: Sequence[Sequence[Profile]]) -> tuple[str, ...]:
    """One panel for all where every record has one stack, else one panel per stack."""
    stacks_of = [list(dict.fromkeys(profile.stack for profile in line)) for line in lines]
    if all(len(stacks) <= 1 for stacks in stacks_of):
        return ("",)
    return tuple(dict.fromkeys(stack for stacks in stacks_of for stack in stacks))


def _statistics(quantity: Quantity, lines: Sequence[Sequence[Profile]]) -> tuple[str, ...]:
    found = dict.fromkeys(profile.statistic for line in lines for profile in line)
    order = (quantity.headline, *_STATISTICS)
    return tuple(sorted(found, key=lambda one: order.index(one) if one in order else len(order)))


def _rows(
    profiles: Sequence[Profile],
    record: int,
    panels: Sequence[str],
    statistics: Sequence[str],
    *,
    several: bool,
) -> list[tuple[Series, list[Profile]]]:
    """Group the lines of one record into rows of the key."""
    groups: dict[tuple[str, str, int | None], list[Profile]] = {}
    for profile in profiles:
        groups.setdefault((profile.stack, profile.point, profile.sublayer), []).append(profile)
    rows: list[tuple[Series, list[Profile]]] = []
    seen: dict[tuple[str, str], int] = {}
    for (stack, point, sublayer), group in groups.items():
        twins = sum((stack, point) == other[:2] for other in groups)
        nth = seen[stack, point] = seen.get((stack, point), 0) + 1
        label = point if twins == 1 else f"{point} (write {sublayer})"
        if several and twins == 1 and point in ("stream", "block"):
            label = ""
        row = Series(
            record=record,
            panel=panels.index(stack) if stack in panels else 0,
            point=point,
            label=label,
            colour=record_colour(record) if several else point_colour(point),
            symbol=symbol_of(point) + ("-open" if nth > 1 else ""),
            headline=min(group, key=lambda profile: statistics.index(profile.statistic)),
        )
        rows.append((row, group))
    return rows


def _layout(
    quantity: Quantity, panels: Sequence[str], lines: Sequence[Sequence[Profile]]
) -> dict[str, Any]:
    deepest = max((max(p.layers, default=0) for line in lines for p in line), default=1)
    steps = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
    step = next((one for one in steps if deepest / one <= _TICKS), steps[-1])
    layout: dict[str, Any] = {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {
            "family": "system-ui, -apple-system, Segoe UI, Liberation Sans, sans-serif",
            "size": 12,
        },
        "margin": {"l": 56, "r": 14, "t": 10, "b": 42},
        "hovermode": "closest",
        "hoverdistance": 60,
        "hoverlabel": {"align": "left"},
    }
    unit = f" ({quantity.unit})" if quantity.unit else ""
    gap = 0.07
    size = (1 - gap * (len(panels) - 1)) / len(panels)
    for index, panel in enumerate(panels):
        axis = "" if index == 0 else str(index + 1)
        start = index * (size + gap)
        layout[f"xaxis{axis}"] = {
            "title": {"text": plotly_text(f"{panel} layer".strip()), "standoff": 6},
            "anchor": f"y{axis}",
            "domain": [start, start + size],
            "dtick": step,
            "showline": True,
            "zeroline": False,
            "ticks": "outside",
            "ticklen": 4,
        }
        layout[f"yaxis{axis}"] = {
            "anchor": f"x{axis}",
            "type": quantity.scale,
            "exponentformat": "power",
            "nticks": 7,
            "zeroline": False,
            "automargin": True,
        }
        if index:
            layout[f"yaxis{axis}"]["matches"] = "y"
        else:
            layout["yaxis"]["title"] = {"text": plotly_text(quantity.symbol + unit), "standoff": 8}
        layout[f"yaxis{len(panels) + index + 1}"] = {
            "anchor": f"x{axis}",
            "overlaying": f"y{axis}",
            "range": [0, 1],
            "fixedrange": True,
            "visible": False,
        }
    return layout
