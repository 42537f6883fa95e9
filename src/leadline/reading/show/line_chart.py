"""Lines over depth as one SVG picture that stands on its own: panels side by side, one key below.

Panels stand in rows of `across`. Their places are layers, or what `places` says: depths, steps.

For files: it needs neither a browser's script nor a plotting library. Values that are not finite
are gaps. A dashed line, which is what another is compared with, has a darker shade of its colour,
and a line that another one covers is broad and light: both are seen where they coincide. Panels
share one scale, except for those that have one of their own: "exponent" is for logarithms of any
size, linear up to about one and logarithmic beyond: asinh(value / 2).
"""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING

from leadline.reading.show.palette import record_colour
from leadline.reading.show.plane_panel import plane_panel
from leadline.reading.show.svg import (
    PictureAxis,
    axis_frame,
    covers,
    fit_axis,
    line_pieces,
    path_of,
    round_numbers,
    svg_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.reading.show.panels import Line, Places, Plane

__all__ = ["line_chart"]

_PANEL, _HEIGHT = 400, 300
_LEFT, _TOP, _BOTTOM, _BETWEEN = 70, 64, 46, 76
_TITLE = 36
"""Above this line stands the title; below it the rows of panels."""
_ROW = 20
_STATIONS = 12
"""Where there are more places than this, round numbers are written below the panel."""
_DOTTED = 60
"""A line of more values has no dots: they would touch."""
_NEAR = 4
"""A line covers another that is nowhere farther from it than this."""
_SHADE = 0.6
"""How much of its colour a dashed line keeps; the rest is black."""
_BROAD, _LIGHT = 6, 0.5
"""The width and the opacity of a line that another one covers."""
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#18202a}.soft{fill:#55616d}.title{font-size:15px;"
    "font-weight:600}.grid{stroke:#e8ecef;fill:none}.axis{stroke:#b9c2ca;fill:none}"
)


def line_chart(
    lines: Sequence[Line],
    *,
    title: str,
    value_label: str,
    layer_label: str = "layer",
    start: int = 1,
    scales: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    places: Mapping[str, Places] | None = None,
    across: int | None = None,
    planes: Sequence[Plane] = (),
) -> str:
    """Draw the lines, a panel for each of their panels; their first value is at layer `start`.

    `notes` are written below the key. `places` says what stands below a panel that does not
    count layers. `across` panels stand in a row, all unless given. `planes` are panels of their
    own behind the others; their points have the colours of the lines of the same name.
    """
    scales, places = scales or {}, places or {}
    panels = list(dict.fromkeys(line.panel for line in lines))
    names = list(dict.fromkeys(line.name for line in lines))
    models = list(dict.fromkeys(_model(line) for line in lines))
    count = len(panels) + len(planes)
    across = max(1, min(across or count, count))
    width = _LEFT + across * _PANEL + (across - 1) * _BETWEEN + 20
    storey = _TOP + _HEIGHT + _BOTTOM - _TITLE
    below = _TITLE + storey * math.ceil(count / across)
    written = [row for note in notes for row in textwrap.wrap(note, width // 7)]
    columns = min(across, 3) if len(names) > 12 else 2 if len(names) > 4 else 1
    rows = math.ceil(len(names) / columns)
    height = below + 26 + _ROW * rows + (16 + 17 * len(written) if written else 0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{html.escape(title)}"><style>{_STYLE}</style>'
        f'<rect width="100%" height="100%" fill="#fff"/>'
        f'<text class="title" x="{_LEFT}" y="24">{html.escape(title)}</text>'
    ]
    for index, panel in enumerate(panels):
        same_scale = [panel] if panel in scales else [p for p in panels if p not in scales]
        exponent = scales.get(panel) == "exponent"
        row, column = divmod(index, across)
        left, top = _LEFT + column * (_PANEL + _BETWEEN), _TOP + row * storey
        up = fit_axis(
            [v for line in lines if line.panel in same_scale for v in line.values],
            scale="exponent" if exponent else "linear",
            start=top + _HEIGHT,
            end=top,
            room=0.06 if exponent else 0.08,
        )
        stands = places.get(panel)
        long = max((len(line.values) for line in lines if line.panel in same_scale), default=1)
        positions = list(stands.at) if stands else [float(start + k) for k in range(long)]
        parts.append(
            _panel(
                [line for line in lines if line.panel == panel],
                _axis_across(positions, left, logarithmic=bool(stands and stands.logarithmic)),
                up,
                positions=positions,
                colours={line.name: _colour(line, models) for line in lines},
            )
        )
        label = stands.label if stands else layer_label
        parts.append(svg_text(panel, left, top - 12))
        below_axis = top + _HEIGHT + 36
        parts.append(svg_text(label, left + _PANEL / 2, below_axis, "soft", anchor="middle"))
    for index, plane in enumerate(planes, start=len(panels)):
        row, column = divmod(index, across)
        parts.append(
            plane_panel(
                plane,
                left=_LEFT + column * (_PANEL + _BETWEEN),
                top=_TOP + row * storey,
                size=(_PANEL, _HEIGHT),
                colour=lambda name: record_colour(models.index(name)),
            )
        )
    middle = _TOP + _HEIGHT / 2
    parts.append(
        f'<text class="soft" transform="translate(16 {middle:g}) rotate(-90)" '
        f'text-anchor="middle">{html.escape(value_label)}</text>'
    )
    for place, name in enumerate(names):
        column, row = divmod(place, rows)
        line = next(line for line in lines if line.name == name)
        left = _LEFT + column * (_PANEL + _BETWEEN)
        colour = _colour(line, models)
        y = below + 16 + row * _ROW
        dash = ' stroke-dasharray="5 4"' if line.faint else ""
        parts.append(
            f'<line x1="{left}" x2="{left + 28}" y1="{y}" y2="{y}" stroke="{colour}" '
            f'stroke-width="2"{dash}/><text x="{left + 36}" y="{y + 4}">{html.escape(name)}</text>'
        )
    for place, text in enumerate(written):
        y = below + 36 + _ROW * rows + 17 * place
        parts.append(f'<text class="soft" x="{_LEFT}" y="{y}">{html.escape(text)}</text>')
    return "".join(parts) + "</svg>\n"


def _model(line: Line) -> str:
    """What gives a line its colour."""
    return str(line.facts.get("model", line.name))


def _colour(line: Line, models: Sequence[str]) -> str:
    """The colour of a line: that of its model, darker where it is dashed."""
    colour = record_colour(models.index(_model(line)))
    if not line.faint:
        return colour
    parts = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(_SHADE * part):02X}" for part in parts)


def _axis_across(positions: Sequence[float], left: float, *, logarithmic: bool) -> PictureAxis:
    ends = min(positions), max(positions)
    scale = "log" if logarithmic else "linear"
    return PictureAxis(*ends, left + 10, left + _PANEL - 10, scale)


def _panel(
    lines: Sequence[Line],
    across: PictureAxis,
    up: PictureAxis,
    *,
    positions: Sequence[float],
    colours: Mapping[str, str],
) -> str:
    """The grid, the ticks and the lines of one panel."""
    few = len(positions) <= _STATIONS or across.scale == "log"
    stations = positions if few else round_numbers(across.low, across.high, _STATIONS)
    if all(one.is_integer() for one in map(float, positions)):  # there is no layer 2.5
        stations = [one for one in stations if float(one).is_integer()]
    marks = [(one, f"{one:g}") for one in stations]
    parts = [axis_frame(across, up, stations=marks, levels=up.ticks(), margin=10)]
    pieces = [line_pieces(positions[: len(one.values)], one.values, across, up) for one in lines]
    for at, line in enumerate(lines):
        hidden = any(
            len(other.values) == len(line.values) and covers(pieces[later], pieces[at], _NEAR)
            for later, other in enumerate(lines[at + 1 :], start=at + 1)
        )
        parts.append(_path(line, pieces[at], colours[line.name], hidden=hidden))
        parts += [
            f'<path class="error" d="M{across.at(x):.1f} {up.at(value - error):.1f}'
            f'V{up.at(value + error):.1f}" stroke="{colours[line.name]}" stroke-width="1.2"/>'
            for x, value, error in zip(positions, line.values, line.errors, strict=False)
            if math.isfinite(value) and math.isfinite(error)
        ]
    return "".join(parts)


def _path(
    line: Line, pieces: Sequence[Sequence[tuple[float, float]]], colour: str, *, hidden: bool
) -> str:
    dash = ' stroke-dasharray="5 4"' if line.faint else ""
    light = f' opacity="{_LIGHT:g}"' if hidden else ""
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{colour}"/>'
        for piece in pieces
        for x, y in piece
        if not line.faint and len(line.values) <= _DOTTED
    )
    return (
        f'<path d="{"".join(map(path_of, pieces))}" fill="none" stroke="{colour}" '
        f'stroke-width="{_BROAD if hidden else 2}"{dash}{light}>'
        f"<title>{html.escape(line.name)}</title></path>{dots}"
    )
