"""Points of a plane beside a circle, as one panel of a picture; both axes have one scale."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from leadline.reading.show.panels import Plane

__all__ = ["plane_panel"]

_MARGIN = 1.06
_TICKS = 6


def plane_panel(
    plane: Plane,
    *,
    left: float,
    top: float,
    size: tuple[float, float],
    colour: Callable[[str], str],
) -> str:
    """Draw the points of every name in its colour, over the circle."""
    width, height = size
    x0, y0, scale = _fit(plane, width, height)

    def at(x: float, y: float) -> tuple[float, float]:
        return left + width / 2 + (x - x0) * scale, top + height / 2 - (y - y0) * scale

    bottom = top + height
    centre = at(*plane.centre)
    parts = [
        f'<text x="{left:g}" y="{top - 12:g}">{html.escape(plane.panel)}</text>',
        f'<circle cx="{centre[0]:.1f}" cy="{centre[1]:.1f}" r="{plane.radius * scale:.1f}" '
        f'fill="#e8f1ec" stroke="#7f9a8c"><title>{html.escape(plane.region)}</title></circle>',
    ]
    half = width / 2 / scale
    for tick in _ticks(x0 - half, x0 + half):
        x, _ = at(tick, 0.0)
        parts.append(
            f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom:g}" y2="{bottom + 4:g}"/>'
            f'<text class="soft" x="{x:.1f}" y="{bottom + 18:g}" text-anchor="middle">'
            f"{_written(tick)}</text>"
        )
    half = height / 2 / scale
    for tick in _ticks(y0 - half, y0 + half):
        _, y = at(0.0, tick)
        parts.append(
            f'<line class="grid" x1="{left:g}" x2="{left + width:g}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="soft" x="{left - 8:g}" y="{y + 4:.1f}" text-anchor="end">'
            f"{_written(tick)}</text>"
        )
    for name, points in plane.points.items():
        dots = "".join(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.4"/>' for x, y in (at(*p) for p in points)
        )
        parts.append(
            f'<g fill="{colour(name)}" fill-opacity=".75"><title>{html.escape(name)}</title>{dots}</g>'
        )
    parts.append(
        f'<line class="axis" x1="{left:g}" x2="{left + width:g}" y1="{bottom:g}" y2="{bottom:g}"/>'
        f'<text class="soft" x="{left + width / 2:g}" y="{bottom + 36:g}" text-anchor="middle">'
        f"{html.escape(plane.label)}</text>"
    )
    return "".join(parts)


def _fit(plane: Plane, width: float, height: float) -> tuple[float, float, float]:
    """The middle of the panel, and how long a unit is, so that circle and points are inside."""
    (cx, cy), radius = plane.centre, plane.radius
    every = [point for points in plane.points.values() for point in points]
    across = [cx - radius, cx + radius, *(x for x, _ in every)]
    up = [cy - radius, cy + radius, *(y for _, y in every)]
    x0, y0 = ((min(ends) + max(ends)) / 2 for ends in (across, up))
    scale = min(width / (max(across) - min(across)), height / (max(up) - min(up))) / _MARGIN
    return x0, y0, scale


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers between two ends, at most about six of them."""
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough)
    return [k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _written(tick: float) -> str:
    return f"{tick:g}".replace("-", "−")
