"""The part of the page about training: curves over steps, as cards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline.reading.show.markup import definitions, formula, safe, segmented
from leadline.reading.show.palette import DASHES, css_colour

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.reading.page.training_curves import CurveChart, CurveKey

__all__ = ["curve_card", "training_section"]


def training_section(charts: Sequence[CurveChart]) -> str:
    """The section; empty where no record holds a single training run."""
    if not charts:
        return ""
    cards = "".join(curve_card(chart) for chart in charts)
    return (
        '<section id="training" aria-labelledby="training-title">'
        f'<h2 id="training-title">Over training</h2><div class="charts">{cards}</div></section>'
    )


def curve_card(chart: CurveChart) -> str:
    """One chart with its switches, its key, its meaning and its table of numbers."""
    quantity, key = chart.quantity, chart.key
    scale = segmented("scale", {"linear": "linear", "log": "log"}, chosen=quantity.scale)
    gaps = ""
    if chart.gaps:
        sentences = " ".join(safe(gap) for gap in chart.gaps)
        gaps = f'<p class="warn gaps">Not finite, marked × on the upper edge: {sentences}</p>'
    more = [
        ("Formula", quantity.formula),
        ("Unit", quantity.unit),
        ("Source", quantity.source),
    ]
    return (
        f'<article class="card chart" id="{key}" aria-labelledby="{key}-title">'
        f'<header><div><h4 id="{key}-title">{safe(chart.title)}</h4> '
        f'<span class="symbol">{formula(quantity.symbol)}</span></div>'
        f'<div role="group" aria-label="Scale">{scale}</div></header>'
        f'<div class="plot waiting" role="img" aria-label="{safe(chart.spoken)}"></div>'
        f'<p class="warn lost" hidden></p>{gaps}'
        f'<div class="keys"><ul>{"".join(_key(at, row) for at, row in enumerate(chart.rows))}'
        "</ul></div>"
        f"{definitions([('High', quantity.high), ('Low', quantity.low)], kind='meaning')}"
        '<details class="table"><summary>Formula and numbers</summary>'
        f"{definitions(more, kind='meaning', text=formula)}"
        '<div class="numbers" tabindex="0" role="region" aria-label="Numbers"></div>'
        "</details></article>"
    )


def _key(at: int, row: CurveKey) -> str:
    line = (
        '<svg class="marker" viewBox="0 0 26 16" aria-hidden="true">'
        f'<path d="M1 8h24" stroke-width="{row.width:g}" stroke-dasharray="{DASHES[row.dash]}"/>'
        "</svg>"
    )
    return (
        f'<li><button type="button" class="key" data-series="{at}" aria-pressed="true" '
        f'style="--c:{css_colour(row.colour)}">{line}<span class="label">{safe(row.label)}</span>'
        f'<span class="law">{safe(row.detail)}</span></button></li>'
    )
