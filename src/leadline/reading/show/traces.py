"""One line over depth as Plotly traces.

A value that is not finite is a gap in its line and a cross on the edge of the panel: at the top
for +∞, at the bottom for NaN and −∞. The crosses stand on an axis of their own that runs from 0 to
1 over the height of the panel.
"""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leadline.reading.show.blocks import read_blocks
from leadline.reading.show.wording import number, statistic_in_words, with_indices

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leadline.record import Profile, Quantity, Record

__all__ = ["LineStyle", "gap_sentences", "line_traces", "module_paths", "plotly_text"]

_MARKERS_PER_LINE = 33
_HOVER_WIDTH = 40
"""Letters in a row of the hover box, so that it fits a phone."""
_TOP, _BOTTOM = 0.97, 0.03
"""Where crosses stand for values that are not finite, as a share of the height."""

ModulePlace = tuple[str, int, str, int | None]


@dataclass(frozen=True, slots=True)
class LineStyle:
    """How a line looks and which row of the key it belongs to.

    `record` is empty where there is only one.
    """

    series: int
    name: str
    record: str
    panel: int
    panels: int
    depth: int
    colour: str
    dash: str
    symbol: str
    visible: bool


def line_traces(
    profile: Profile, quantity: Quantity, style: LineStyle, *, modules: Mapping[ModulePlace, str]
) -> list[dict[str, Any]]:
    """Return the trace of the line, and one of crosses where values are not finite."""
    axis = "" if style.panel == 0 else str(style.panel + 1)
    values = [float(value) for value in profile.values]
    heading = _heading(profile, style)
    hover = [
        [f"layer {layer}", number(value, digits=4), plotly_text(_fold(path))]
        for layer, value in zip(profile.layers, values, strict=True)
        for path in [_path(modules, profile, layer)]
    ]
    meta: dict[str, Any] = {
        "series": style.series,
        "statistic": profile.statistic,
        "depth": max(style.depth, 1),
        "heading": heading,
    }
    shared: dict[str, Any] = {
        "type": "scatter",
        "name": plotly_text(heading),
        "xaxis": f"x{axis}",
        "visible": True if style.visible else "legendonly",
        "hovertemplate": _hover_template(profile, quantity, style),
    }
    line: dict[str, Any] = {
        **shared,
        "mode": "lines+markers",
        "x": list(profile.layers),
        "y": [value if math.isfinite(value) else None for value in values],
        "yaxis": f"y{axis}",
        "connectgaps": False,
        "customdata": hover,
        "line": {"color": style.colour, "dash": style.dash, "width": 2},
        "marker": {
            "color": style.colour,
            "symbol": style.symbol,
            "size": 6,
            "maxdisplayed": _MARKERS_PER_LINE,
        },
        "meta": meta,
    }
    gaps = [at for at, value in enumerate(values) if not math.isfinite(value)]
    if not gaps:
        return [line]
    crosses: dict[str, Any] = {
        **shared,
        "mode": "markers",
        "x": [profile.layers[at] for at in gaps],
        "y": [_TOP if values[at] == math.inf else _BOTTOM for at in gaps],
        "yaxis": f"y{style.panels + style.panel + 1}",
        "showlegend": False,
        "cliponaxis": False,
        "customdata": [hover[at] for at in gaps],
        "marker": {"color": style.colour, "symbol": "x", "size": 9},
        "meta": {**meta, "edge": True},
    }
    return [line, crosses]


def module_paths(record: Record) -> dict[ModulePlace, str]:
    """Map (stack, layer, point, sublayer) to the path of the module that stands there.

    The stream and whole blocks have no sublayer. A role is also found without its sublayer.
    """
    paths: dict[ModulePlace, str] = {}
    for block in read_blocks(record.provenance.get("anatomy") or {}):
        stack, layer = block.stack, block.layer
        paths[stack, layer, "block", None] = block.module
        paths[stack, layer, "stream", None] = block.module
        for sublayer, write in enumerate(block.writes, start=1):
            paths[stack, layer, write.role, sublayer] = write.module
            paths.setdefault((stack, layer, write.role, None), write.module)
    return paths


def gap_sentences(profile: Profile, name: str) -> list[str]:
    """Say at which layers a line has values that are not finite."""
    kinds: dict[str, list[int]] = {}
    for layer, value in zip(profile.layers, profile.values, strict=True):
        if not math.isfinite(value):
            kinds.setdefault(number(float(value)), []).append(layer)
    return [
        f"{name}, {statistic_in_words(profile.statistic)}: {kind} at {_ranges(layers)}."
        for kind, layers in kinds.items()
    ]


def plotly_text(text: str) -> str:
    """Escape a text for Plotly, which reads a little HTML; it knows &lt; but not &quot;."""
    return html.escape(text, quote=False).replace("\n", "<br>")


def _heading(profile: Profile, style: LineStyle) -> str:
    stack = f"{profile.stack} " if style.panels > 1 else ""
    words = "" if profile.statistic == "value" else f", {statistic_in_words(profile.statistic)}"
    return f"{stack}{style.name}{words}"


def _hover_template(profile: Profile, quantity: Quantity, style: LineStyle) -> str:
    stack = f"{profile.stack} " if style.panels > 1 else ""
    words = statistic_in_words(profile.statistic)
    unit = f" {quantity.unit}" if quantity.unit else ""
    rows = [
        f"<b>{_in_template(stack)}%{{customdata[0]}}, {_in_template(profile.point)}</b>",
        f"{_in_template(words)} {with_indices(_in_template(quantity.symbol))} = "
        f"<b>%{{customdata[1]}}</b>{_in_template(unit)}",
        _in_template(_shorten(style.record)),
        "%{customdata[2]}",
    ]
    return "<br>".join(row for row in rows if row) + "<extra></extra>"


def _in_template(text: str) -> str:
    """Escape a text inside a hover template, where `%{` would begin a placeholder."""
    return plotly_text(text).replace("%{", "%\u2060{")


def _path(modules: Mapping[ModulePlace, str], profile: Profile, layer: int) -> str:
    if layer == 0 and profile.point == "stream":
        return "what enters the first block"
    exact = modules.get((profile.stack, layer, profile.point, profile.sublayer))
    return exact or modules.get((profile.stack, layer, profile.point, None), "")


def _fold(path: str) -> str:
    """Break a long module path after a dot, so that the hover box fits a phone."""
    rows = [""]
    for part in _parts(path):
        if rows[-1] and len(rows[-1]) + len(part) > _HOVER_WIDTH:
            rows.append("")
        rows[-1] += part
    return "\n".join(rows)


def _shorten(name: str) -> str:
    """Cut a name that would make the hover box wider than a phone."""
    return name if len(name) <= _HOVER_WIDTH else f"{name[: _HOVER_WIDTH - 1]}…"


def _parts(path: str) -> list[str]:
    """Split a module path after each dot: `a.b` is `a.` and `b`."""
    parts = path.split(".")
    return [f"{part}." for part in parts[:-1]] + parts[-1:]


def _ranges(layers: Sequence[int]) -> str:
    """Write layers shortly: `layer 3`, `layers 3 to 7, 9`."""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][1] + 1:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer])
    words = [str(first) if first == last else f"{first} to {last}" for first, last in runs]
    return f"layer{'s' if len(layers) > 1 else ''} {', '.join(words)}"
