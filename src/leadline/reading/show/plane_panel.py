"""Points of a plane beside a circle, as one panel of a picture; both axes have one scale."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from leadline.reading.show.svg import PictureAxis, axis_frame, svg_text

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
    half_x, half_y = width / 2 / scale, height / 2 / scale
    across = PictureAxis(x0 - half_x, x0 + half_x, left, left + width)
    up = PictureAxis(y0 - half_y, y0 + half_y, top + height, top)
    x, y = across.at(plane.centre[0]), up.at(plane.centre[1])
    disc = (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{plane.radius * scale:.1f}" '
        f'fill="#e8f1ec" stroke="#7f9a8c"><title>{html.escape(plane.region)}</title></circle>'
    )
    groups = "".join(
        f'<g fill="{colour(name)}" fill-opacity=".75"><title>{html.escape(name)}</title>'
        + "".join(
            f'<circle cx="{across.at(x):.1f}" cy="{up.at(y):.1f}" r="2.4"/>' for x, y in points
        )
        + "</g>"
        for name, points in plane.points.items()
    )
    return (
        f"{svg_text(plane.panel, left, top - 12)}{disc}"
        f"{axis_frame(across, up, stations=across.ticks(_TICKS), levels=up.ticks(_TICKS))}{groups}"
        f"{svg_text(plane.label, left + width / 2, top + height + 36, 'soft', anchor='middle')}"
    )


def _fit(plane: Plane, width: float, height: float) -> tuple[float, float, float]:
    """The middle of the panel, and how long a unit is, so that circle and points are inside."""
    (cx, cy), radius = plane.centre, plane.radius
    every = [point for points in plane.points.values() for point in points]
    across = [cx - radius, cx + radius, *(x for x, _ in every)]
    up = [cy - radius, cy + radius, *(y for _, y in every)]
    x0, y0 = ((min(ends) + max(ends)) / 2 for ends in (across, up))
    scale = min(width / (max(across) - min(across)), height / (max(up) - min(up))) / _MARGIN
    return x0, y0, scale
