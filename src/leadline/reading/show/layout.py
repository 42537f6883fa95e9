"""The layout of a Plotly figure over depth, which every chart of the page shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadline.reading.show.traces import plotly_text
from leadline.reading.show.wording import with_indices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.record import Profile, Quantity

__all__ = ["layout_over_depth"]

_TICKS = 12
"""The most ticks on the axis of layers."""
_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def _layers_of(panel: str, lines: Sequence[Sequence[Profile]]) -> tuple[int, int]:
    """The first and the last layer of the lines of a panel."""
    layers = [
        layer
        for line in lines
        for profile in line
        if panel in ("", profile.stack)
        for layer in profile.layers
    ]
    return min(layers, default=0), max(layers, default=1)


def layout_over_depth(
    quantity: Quantity, panels: Sequence[str], lines: Sequence[Sequence[Profile]]
) -> dict[str, Any]:
    """Return the layout of a figure: depth across, one panel per title, one vertical scale."""
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
        low, high = _layers_of(panel, lines)
        margin = 0.03 * (high - low) or 0.5
        layout[f"xaxis{axis}"] = {
            "title": {"text": plotly_text(f"{panel} layer".strip()), "standoff": 6},
            "anchor": f"y{axis}",
            "domain": [start, start + size],
            "range": [low - margin, high + margin],
            "dtick": next((step for step in _STEPS if high / step <= _TICKS), _STEPS[-1]),
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
            symbol = with_indices(plotly_text(quantity.symbol + unit))
            layout["yaxis"]["title"] = {"text": symbol, "standoff": 8}
        layout[f"yaxis{len(panels) + index + 1}"] = {
            "anchor": f"x{axis}",
            "overlaying": f"y{axis}",
            "range": [0, 1],
            "fixedrange": True,
            "visible": False,
        }
    return layout
