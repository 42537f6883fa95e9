"""One number per layer and head as a small map of cells: layers across, heads downwards."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING

from leadline.reading.show.svg import svg_text
from leadline.reading.show.wording import number

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["head_map"]

_CELL, _LEFT, _TOP = 18, 34, 20
_FAINTEST = 0.06
"""The opacity of the smallest value: its cell is still visible."""
_LABELS = 24
"""Above this many rows or columns only every fifth is labelled."""


def head_map(values: Mapping[tuple[int, int], float], *, spoken: str) -> str:
    """Draw values by (layer, head): the larger, the darker; a value that is not finite is crossed."""
    layers = range(min(at[0] for at in values), max(at[0] for at in values) + 1)
    heads = range(1, max(at[1] for at in values) + 1)
    known = [value for value in values.values() if math.isfinite(value)]
    low, high = min(known, default=0.0), max(known, default=0.0)
    cells = "".join(
        _cell(layer, head, value, share=_share(value, low, high), first=layers[0])
        for (layer, head), value in values.items()
    )
    width = _LEFT + _CELL * len(layers) + 4
    height = _TOP + _CELL * len(heads) + 4
    return (
        f'<svg class="headmap" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{html.escape(spoken)}">{_axis(layers, heads)}{cells}</svg>'
    )


def _cell(layer: int, head: int, value: float, *, share: float | None, first: int) -> str:
    x, y = _LEFT + _CELL * (layer - first), _TOP + _CELL * (head - 1)
    title = f"<title>layer {layer}, head {head}: {html.escape(number(value, digits=4))}</title>"
    box = f'x="{x}" y="{y}" width="{_CELL - 1}" height="{_CELL - 1}"'
    if share is None:
        cross = f"M{x + 4} {y + 4}l9 9m0 -9l-9 9"
        return f'<g>{title}<rect class="lost" {box}/><path d="{cross}"/></g>'
    return f'<rect {box} fill-opacity="{share:.3f}">{title}</rect>'


def _share(value: float, low: float, high: float) -> float | None:
    """How dark a value is; all of one value are half dark."""
    if not math.isfinite(value):
        return None
    place = 0.5 if high == low else (value - low) / (high - low)
    return _FAINTEST + (1 - _FAINTEST) * place


def _axis(layers: range, heads: range) -> str:
    half = _CELL / 2 - 0.5
    across = "".join(
        svg_text(str(one), _LEFT + _CELL * (one - layers[0]) + half, _TOP - 6, anchor="middle")
        for one in layers
        if _labelled(one, len(layers))
    )
    down = "".join(
        svg_text(str(head), _LEFT - 6, _TOP + _CELL * (head - 1) + 13, anchor="end")
        for head in heads
        if _labelled(head, len(heads))
    )
    return across + down


def _labelled(at: int, count: int) -> bool:
    """Label every one of a few, else every fifth."""
    return count <= _LABELS or at == 1 or at % 5 == 0
