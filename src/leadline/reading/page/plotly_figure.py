"""A chart as a Plotly figure, for notebooks: a plain dictionary that `go.Figure` takes.

A value that is not finite is a gap in its line and a cross on the edge of the panel: at the top
for +∞, at the bottom for NaN and −∞. The crosses stand on an axis of their own that runs from 0 to
1 over the height of the panel. The page itself does not use Plotly.
"""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING, Any

from leadline.reading.show.blocks import module_paths
from leadline.reading.show.wording import number, statistic_in_words, with_indices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.reading.show.chart import Chart, ChartLine
    from leadline.record import Record

__all__ = ["plotly_figure"]

_TICKS = 12
"""The most ticks on the axis of layers."""
_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_TOP, _BOTTOM = 0.97, 0.03
"""Where crosses stand for values that are not finite, as a share of the height."""


def plotly_figure(chart: Chart, records: Sequence[Record]) -> dict[str, Any]:
    """Return the figure of a chart over depth, with `data` and `layout`."""
    modules = [module_paths(record) for record in records]
    data = [
        trace
        for line in chart.lines
        for trace in _traces(chart, line, modules[chart.rows[line.series].record])
    ]
    return {"data": data, "layout": _layout(chart)}


def _traces(
    chart: Chart, line: ChartLine, modules: dict[tuple[str, int, str, int | None], str]
) -> list[dict[str, Any]]:
    row = chart.rows[line.series]
    profile = next(one for one in row.profiles if one.statistic == line.statistic)
    axis = "" if line.panel == 0 else str(line.panel + 1)
    paths = [_path(modules, profile.stack, x, profile.point, profile.sublayer) for x in line.x]
    hover = [
        [f"layer {x}", number(value, digits=4), _text(path)]
        for x, value, path in zip(line.x, line.values, paths, strict=True)
    ]
    words = statistic_in_words(line.statistic)
    symbol = with_indices(_template(chart.symbol))
    shared: dict[str, Any] = {
        "type": "scatter",
        "name": _text(line.heading),
        "xaxis": f"x{axis}",
        "visible": True if line.statistic in chart.shown else "legendonly",
        "meta": {"statistic": line.statistic, "depth": line.depth},
        "hovertemplate": f"<b>%{{customdata[0]}}, {_template(row.label)}</b><br>"
        f"{_template(words)} {symbol} = <b>%{{customdata[1]}}</b> {_template(chart.unit)}<br>"
        "%{customdata[2]}<extra></extra>",
    }
    drawn: dict[str, Any] = {
        **shared,
        "mode": "lines+markers",
        "x": list(line.x),
        "y": [value if math.isfinite(value) else None for value in line.values],
        "yaxis": f"y{axis}",
        "connectgaps": False,
        "customdata": hover,
        "line": {"color": row.colour, "dash": line.dash or row.dash, "width": row.width},
        "marker": {"color": row.colour, "symbol": row.symbol or "circle", "size": 6},
    }
    gaps = [at for at, value in enumerate(line.values) if not math.isfinite(value)]
    if not gaps:
        return [drawn]
    crosses: dict[str, Any] = {
        **shared,
        "mode": "markers",
        "x": [line.x[at] for at in gaps],
        "y": [_TOP if line.values[at] == math.inf else _BOTTOM for at in gaps],
        "yaxis": f"y{len(chart.panels) + line.panel + 1}",
        "showlegend": False,
        "cliponaxis": False,
        "customdata": [hover[at] for at in gaps],
        "marker": {"color": row.colour, "symbol": "x", "size": 9},
    }
    return [drawn, crosses]


def _layout(chart: Chart) -> dict[str, Any]:
    layout: dict[str, Any] = {"hovermode": "closest", "margin": {"l": 56, "r": 14, "t": 10}}
    unit = f" ({chart.unit})" if chart.unit else ""
    gap = 0.07
    size = (1 - gap * (len(chart.panels) - 1)) / len(chart.panels)
    for index, panel in enumerate(chart.panels):
        axis = "" if index == 0 else str(index + 1)
        start = index * (size + gap)
        layers = [x for line in chart.lines if line.panel == index for x in line.x] or [0, 1]
        low, high = min(layers), max(layers)
        margin = 0.03 * (high - low) or 0.5
        layout[f"xaxis{axis}"] = {
            "title": {"text": _text(f"{panel} layer".strip())},
            "anchor": f"y{axis}",
            "domain": [start, start + size],
            "range": [low - margin, high + margin],
            "dtick": next((step for step in _STEPS if high / step <= _TICKS), _STEPS[-1]),
        }
        layout[f"yaxis{axis}"] = {"anchor": f"x{axis}", "type": chart.scale}
        if index:
            layout[f"yaxis{axis}"]["matches"] = "y"
        else:
            layout["yaxis"]["title"] = {"text": with_indices(_text(chart.symbol + unit))}
        layout[f"yaxis{len(chart.panels) + index + 1}"] = {
            "anchor": f"x{axis}",
            "overlaying": f"y{axis}",
            "range": [0, 1],
            "fixedrange": True,
            "visible": False,
        }
    return layout


def _path(
    modules: dict[tuple[str, int, str, int | None], str],
    stack: str,
    layer: int,
    point: str,
    sublayer: int | None,
) -> str:
    if layer == 0 and point == "stream":
        return "what enters the first block"
    exact = modules.get((stack, layer, point, sublayer))
    return exact or modules.get((stack, layer, point, None), "")


def _text(text: str) -> str:
    """Escape a text for Plotly, which reads a little HTML; it knows &lt; but not &quot;."""
    return html.escape(text, quote=False)


def _template(text: str) -> str:
    """Escape a text inside a hover template, where `%{` would begin a placeholder."""
    return _text(text).replace("%{", "%\u2060{")
