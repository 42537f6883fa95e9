"""Paths by length: a picture of how their sizes fall."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from leadline.reading.show.line_chart import line_chart
from leadline.reading.show.panels import Line

if TYPE_CHECKING:
    from leadline.instruments.paths.result import Paths

__all__ = ["picture_of_paths"]


def picture_of_paths(paths: Paths) -> str:
    """Draw log10 of |Z| / |X| over the length, for output, residual and logits, as SVG.

    The axis of the chart counts from 1, so a path without a hop stands at 1.
    """
    tensors = {"output": paths.output, "residual": paths.residual, "logits": paths.logits}
    lines = [
        Line(panel=paths.model, name=name, values=tuple(map(_log10, shares.norm_share)))
        for name, shares in tensors.items()
        if shares is not None
    ]
    return line_chart(
        lines,
        title="Size of all paths of one length",
        value_label="log10 of |Z| / |X|",
        layer_label="hops",
        start=0,
    )


def _log10(value: float) -> float:
    return math.log10(value) if value > 0 else -math.inf
