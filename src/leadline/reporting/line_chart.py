"""Lines over depth as one SVG picture that stands on its own: panels side by side, one key below.

For files: it needs neither a browser's script nor a plotting library. Values that are not finite
are gaps.
"""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING

from leadline.reporting.palette import record_colour
from leadline.reporting.wording import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.analysis.outcome import Line

__all__ = ["line_chart"]

_PANEL, _HEIGHT = 400, 300
_LEFT, _TOP, _BOTTOM, _BETWEEN = 58, 64, 46, 56
_ROW = 20
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#18202a}.soft{fill:#55616d}.title{font-size:15px;"
    "font-weight:600}.grid{stroke:#e8ecef}.axis{stroke:#b9c2ca}"
)


def line_chart(
    lines: Sequence[Line], *, title: str, value_label: str, layer_label: str = "layer"
) -> str:
    """Draw the lines, a panel for each of their panels, on one scale."""
    panels = list(dict.fromkeys(line.panel for line in lines))
    names = list(dict.fromkeys(line.name for line in lines))
    models = list(dict.fromkeys(str(line.facts.get("model", line.name)) for line in lines))
    finite = [v for line in lines for v in line.values if math.isfinite(v)]
    low, high = _range(finite)
    depth = max((len(line.values) for line in lines), default=1)
    width = _LEFT + len(panels) * _PANEL + (len(panels) - 1) * _BETWEEN + 20
    below = _TOP + _HEIGHT + _BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {below + 26 + _ROW * len(names)}" '
        f'role="img" aria-label="{html.escape(title)}"><style>{_STYLE}</style>'
        f'<rect width="100%" height="100%" fill="#fff"/>'
        f'<text class="title" x="{_LEFT}" y="24">{html.escape(title)}</text>'
    ]
    for index, panel in enumerate(panels):
        left = _LEFT + index * (_PANEL + _BETWEEN)
        parts.append(_frame(panel, left, low, high, depth, layer_label))
        for line in lines:
            if line.panel == panel:
                colour = record_colour(models.index(str(line.facts.get("model", line.name))))
                parts.append(_path(line, left, low, high, depth, colour))
    middle = _TOP + _HEIGHT / 2
    parts.append(
        f'<text class="soft" transform="translate(16 {middle:g}) rotate(-90)" '
        f'text-anchor="middle">{html.escape(value_label)}</text>'
    )
    for row, name in enumerate(names):
        line = next(line for line in lines if line.name == name)
        colour = record_colour(models.index(str(line.facts.get("model", line.name))))
        y = below + 16 + row * _ROW
        dash = ' stroke-dasharray="5 4"' if line.faint else ""
        parts.append(
            f'<line x1="{_LEFT}" x2="{_LEFT + 28}" y1="{y}" y2="{y}" stroke="{colour}" '
            f'stroke-width="2"{dash}/><text x="{_LEFT + 36}" y="{y + 4}">{html.escape(name)}</text>'
        )
    return "".join(parts) + "</svg>\n"


def _range(values: Sequence[float]) -> tuple[float, float]:
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    room = (high - low) * 0.08 or max(abs(high), 1.0) * 0.1
    return low - room, high + room


def _frame(panel: str, left: int, low: float, high: float, depth: int, label: str) -> str:
    bottom = _TOP + _HEIGHT
    parts = [f'<text x="{left}" y="{_TOP - 12}">{html.escape(panel)}</text>']
    for tick in _ticks(low, high):
        y = _y(tick, low, high)
        parts.append(
            f'<line class="grid" x1="{left}" x2="{left + _PANEL}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="soft" x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">'
            f"{number(tick)}</text>"
        )
    for layer in _layers(depth):
        x = _x(layer, left, depth)
        parts.append(
            f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 4}"/>'
            f'<text class="soft" x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{layer}</text>'
        )
    parts.append(
        f'<line class="axis" x1="{left}" x2="{left + _PANEL}" y1="{bottom}" y2="{bottom}"/>'
        f'<text class="soft" x="{left + _PANEL / 2:g}" y="{bottom + 36}" '
        f'text-anchor="middle">{html.escape(label)}</text>'
    )
    return "".join(parts)


def _path(line: Line, left: int, low: float, high: float, depth: int, colour: str) -> str:
    points = [
        (_x(layer, left, depth), _y(value, low, high)) if math.isfinite(value) else None
        for layer, value in enumerate(line.values, start=1)
    ]
    steps: list[str] = []
    pen_down = False
    for point in points:
        if point is None:
            pen_down = False
            continue
        steps.append(f"{'L' if pen_down else 'M'}{point[0]:.1f} {point[1]:.1f}")
        pen_down = True
    dash = ' stroke-dasharray="5 4" opacity=".75"' if line.faint else ""
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{colour}"/>'
        for x, y in (point for point in points if point is not None)
    )
    return (
        f'<path d="{"".join(steps)}" fill="none" stroke="{colour}" stroke-width="2"{dash}>'
        f"<title>{html.escape(line.name)}</title></path>{'' if line.faint else dots}"
    )


def _x(layer: int, left: int, depth: int) -> float:
    return left + 10 + (layer - 1) * (_PANEL - 20) / max(1, depth - 1)


def _y(value: float, low: float, high: float) -> float:
    return _TOP + _HEIGHT * (high - value) / (high - low)


def _ticks(low: float, high: float) -> list[float]:
    raw = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= raw)
    first = math.ceil(low / step)
    return [k * step for k in range(first, math.floor(high / step) + 1)]


def _layers(depth: int) -> list[int]:
    step = max(1, math.ceil(depth / 12))
    return list(range(1, depth + 1, step))
