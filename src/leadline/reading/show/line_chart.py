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
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leadline.reading.show.palette import record_colour
from leadline.reading.show.plane_panel import plane_panel
from leadline.reading.show.wording import number

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
_APART = 26
"""The least distance of two ticks."""
_SHADE = 0.6
"""How much of its colour a dashed line keeps; the rest is black."""
_BROAD, _LIGHT = 6, 0.5
"""The width and the opacity of a line that another one covers."""
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#18202a}.soft{fill:#55616d}.title{font-size:15px;"
    "font-weight:600}.grid{stroke:#e8ecef}.axis{stroke:#b9c2ca}"
)


@dataclass(frozen=True)
class _Axes:
    """Where layers and values stand in one panel."""

    left: int
    low: float
    high: float
    start: int
    depth: int
    exponent: bool = False
    top: int = _TOP
    places: Places | None = None

    def x(self, layer: int) -> float:
        if self.places is not None:
            return self._at(self.places.at[layer - self.start])
        steps = max(1, self.depth - 1)
        return self.left + 10 + (layer - self.start) * (_PANEL - 20) / steps

    def _at(self, place: float) -> float:
        """Where a depth or a step stands."""
        assert self.places is not None
        positions = self.places.at
        first, last, at = (
            math.log(v) if self.places.logarithmic else v
            for v in (min(positions), max(positions), place)
        )
        return self.left + 10 + (at - first) * (_PANEL - 20) / ((last - first) or 1.0)

    def stations(self) -> list[tuple[float, str]]:
        """Where the ticks below the panel stand, and what is written there."""
        if self.places is None:
            return [(self.x(layer), str(layer)) for layer in _layers(self.depth, self.start)]
        positions = self.places.at
        if len(positions) > _STATIONS:
            return [(self._at(v), f"{v:g}") for v in _ticks(min(positions), max(positions))]
        return [(self._at(v), f"{v:g}") for v in positions]

    def y(self, value: float) -> float:
        low, high, at = (self.stretched(v) for v in (self.low, self.high, value))
        return self.top + _HEIGHT * (high - at) / (high - low)

    def stretched(self, value: float) -> float:
        return math.asinh(value / 2) if self.exponent else value

    def ticks(self) -> list[tuple[float, str]]:
        if not self.exponent:
            return [(tick, number(tick)) for tick in _ticks(self.low, self.high)]
        # The rounder a number, the sooner it gets its place.
        rounded = [0.0, *(m * 10.0**k for m in (1, 5, 2) for k in range(20))]
        kept: list[float] = []
        for tick in (sign * value for value in rounded for sign in (1, -1)):
            apart = all(abs(self.y(tick) - self.y(other)) >= _APART for other in kept)
            if self.low <= tick <= self.high and apart:
                kept.append(tick)
        return [(tick, _power_text(tick)) for tick in sorted(kept)]


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
        low, high = _range(
            [
                v
                for line in lines
                if line.panel in same_scale
                for v in line.values
                if math.isfinite(v)
            ],
            exponent=exponent,
        )
        row, column = divmod(index, across)
        left = _LEFT + column * (_PANEL + _BETWEEN)
        stands = places.get(panel)
        long = max((len(line.values) for line in lines if line.panel in same_scale), default=1)
        axes = _Axes(left, low, high, start, long, exponent, _TOP + row * storey, stands)
        parts.append(_frame(panel, axes, stands.label if stands else layer_label))
        for line in lines:
            if line.panel == panel:
                colour = _shade(record_colour(models.index(_model(line))), line)
                parts.append(_path(line, axes, colour, hidden=_hidden(line, lines, axes)))
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
        colour = _shade(record_colour(models.index(_model(line))), line)
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


def _shade(colour: str, line: Line) -> str:
    """The colour of a line: darker where it is dashed."""
    if not line.faint:
        return colour
    parts = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(_SHADE * part):02X}" for part in parts)


def _range(values: Sequence[float], *, exponent: bool = False) -> tuple[float, float]:
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    if exponent:
        # A margin as the eye sees it, on the stretched axis.
        ends = [math.asinh(end / 2) for end in (low, high)]
        room = (ends[1] - ends[0]) * 0.06 or 0.1
        return 2 * math.sinh(ends[0] - room), 2 * math.sinh(ends[1] + room)
    room = (high - low) * 0.08 or max(abs(high), 1.0) * 0.1
    return low - room, high + room


def _hidden(line: Line, lines: Sequence[Line], axes: _Axes) -> bool:
    """Whether a line that is drawn later covers this one."""
    later = lines[[one is line for one in lines].index(True) + 1 :]
    return any(
        other.panel == line.panel
        and len(other.values) == len(line.values)
        and all(
            math.isfinite(a) and math.isfinite(b) and abs(axes.y(a) - axes.y(b)) < 4
            for a, b in zip(line.values, other.values, strict=True)
        )
        for other in later
    )


def _power_text(value: float) -> str:
    """A power of ten as a tick: minus a thousand."""
    if abs(value) >= 1e6:
        sign = "−" if value < 0 else ""
        digits = str(round(math.log10(abs(value))))
        return f"{sign}10{digits.translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
    return f"{value:,.0f}".replace("-", "−")


def _frame(panel: str, axes: _Axes, label: str) -> str:
    bottom, left = axes.top + _HEIGHT, axes.left
    parts = [f'<text x="{left}" y="{axes.top - 12}">{html.escape(panel)}</text>']
    for tick, text in axes.ticks():
        y = axes.y(tick)
        parts.append(
            f'<line class="grid" x1="{left}" x2="{left + _PANEL}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="soft" x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
        )
    for x, text in axes.stations():
        parts.append(
            f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 4}"/>'
            f'<text class="soft" x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{text}</text>'
        )
    parts.append(
        f'<line class="axis" x1="{left}" x2="{left + _PANEL}" y1="{bottom}" y2="{bottom}"/>'
        f'<text class="soft" x="{left + _PANEL / 2:g}" y="{bottom + 36}" '
        f'text-anchor="middle">{html.escape(label)}</text>'
    )
    return "".join(parts)


def _path(line: Line, axes: _Axes, colour: str, *, hidden: bool) -> str:
    points = [
        (axes.x(layer), axes.y(value)) if math.isfinite(value) else None
        for layer, value in enumerate(line.values, start=axes.start)
    ]
    steps: list[str] = []
    pen_down = False
    for point in points:
        if point is None:
            pen_down = False
            continue
        steps.append(f"{'L' if pen_down else 'M'}{point[0]:.1f} {point[1]:.1f}")
        pen_down = True
    dash = ' stroke-dasharray="5 4"' if line.faint else ""
    broad = f' opacity="{_LIGHT:g}"' if hidden else ""
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{colour}"/>'
        for x, y in (point for point in points if point is not None)
        if not line.faint and len(points) <= _DOTTED
    )
    dots += _bars(line, axes, colour)
    return (
        f'<path d="{"".join(steps)}" fill="none" stroke="{colour}" stroke-width="{_BROAD if hidden else 2}"{dash}{broad}>'
        f"<title>{html.escape(line.name)}</title></path>{dots}"
    )


def _bars(line: Line, axes: _Axes, colour: str) -> str:
    """The error bars of a line that has them."""
    bars: list[str] = []
    for layer, (value, error) in enumerate(
        zip(line.values, line.errors, strict=False), start=axes.start
    ):
        if math.isfinite(value) and math.isfinite(error):
            x, low, high = axes.x(layer), axes.y(value - error), axes.y(value + error)
            bars.append(
                f'<path class="error" d="M{x:.1f} {low:.1f}V{high:.1f}" stroke="{colour}" '
                'stroke-width="1.2"/>'
            )
    return "".join(bars)


def _ticks(low: float, high: float) -> list[float]:
    raw = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= raw)
    first = math.ceil(low / step)
    return [k * step for k in range(first, math.floor(high / step) + 1)]


def _layers(depth: int, start: int) -> list[int]:
    step = max(1, math.ceil(depth / 12))
    return list(range(start, start + depth, step))
