"""Lines drawn for a notebook, in its colours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from leadline.record.words.numbers import heights

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from leadline.record.rows.quantity import AxisScale

__all__ = ["svg_sparkline"]

WIDTH, HEIGHT = 120, 22


def svg_sparkline(
    values: ArrayLike,
    *,
    scale: AxisScale = "linear",
    ends: tuple[float, float] | None = None,
    along: str = "depth",
) -> str:
    """Draw a line over depth or steps as an inline SVG; values that are not finite leave a gap."""
    level, (bottom, top) = heights(values, scale=scale, ends=ends)
    finite = np.isfinite(level)
    if not bool(np.any(finite)):
        return ""
    spread = top - bottom
    across = np.linspace(2, WIDTH - 2, len(level)) if len(level) > 1 else np.array([WIDTH / 2])
    points = [
        f"{x:.1f},{HEIGHT - 3 - (y - bottom) / spread * (HEIGHT - 6):.1f}" if ok else ""
        for x, y, ok in zip(across, level, finite, strict=True)
    ]
    strokes = [piece.split() for piece in " ".join(point or "|" for point in points).split("|")]
    drawn = "".join(
        f'<polyline points="{" ".join(stroke)}"/>'
        if len(stroke) > 1
        else f'<circle cx="{stroke[0].split(",")[0]}" cy="{stroke[0].split(",")[1]}" r="1"/>'
        for stroke in strokes
        if stroke
    )
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" fill="none" '
        f'stroke="currentColor" stroke-width="1.5" role="img" aria-label="over {along}">{drawn}</svg>'
    )
