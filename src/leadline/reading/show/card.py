"""The card of a chart: its switches, its key, its meaning and its numbers."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from leadline.reading.show.markup import definitions, formula, law, marker, safe, segmented
from leadline.reading.show.palette import DASHES, css_colour, dash_of
from leadline.reading.show.wording import statistic_in_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.reading.show.chart import Chart

__all__ = ["chart_card", "controls"]

_SCALES = {"linear": "linear", "log": "log"}


def controls(charts: Sequence[Chart], *, depths_differ: bool) -> str:
    """The switches that act on all charts."""
    parts = [("Scale", segmented("scale-all", {"suited": "auto", **_SCALES}, chosen="suited"))]
    if depths_differ:
        depths = {"layer": "layer", "relative": "layer / depth"}
        parts.append(("Depth", segmented("depth", depths, chosen="layer")))
    choosable = [chart for chart in charts if len(chart.statistics) > 1]
    statistics = dict.fromkeys(one for chart in choosable for one in chart.statistics)
    if statistics:
        chips = "".join(
            _chip(one, "statistic-all", on=_mostly_shown(one, choosable)) for one in statistics
        )
        parts.append(("Lines", chips))
    groups = "".join(
        f'<div class="control" role="group" aria-label="{word}, all charts">'
        f"<span>{word}</span>{buttons}</div>"
        for word, buttons in parts
    )
    return f'<div class="controls">{groups}</div>'


def chart_card(chart: Chart, *, remark: str = "") -> str:
    """One chart with its switches, its key, its meaning and its table of numbers.

    `remark` stands below it.
    """
    key = chart.key
    barred = {} if chart.any_positive else {"log": "No value is positive."}
    scale = segmented("scale", _SCALES, chosen=chart.scale, barred=barred)
    unit = f' <span class="soft small">in {safe(chart.unit)}</span>' if chart.unit else ""
    name = f'<p class="soft small">{safe(chart.name)}</p>' if chart.name else ""
    notes = "".join(
        f'<p class="{kind}">{safe(words)}</p>'
        for kind, words in (("soft small", chart.cut), ("soft small", remark))
        if words
    )
    if chart.gaps:
        sentences = " ".join(safe(gap) for gap in chart.gaps)
        notes += f'<p class="warn gaps">Not finite, marked × on the edge: {sentences}</p>'
    return (
        f'<article class="card chart" id="{key}" aria-labelledby="{key}-title">'
        f'<header><div><h4 id="{key}-title">{safe(chart.title)}</h4> '
        f'<span class="symbol">{formula(chart.symbol)}</span>{unit}</div><div class="switches">'
        '<button type="button" data-action="reset" hidden>Reset zoom</button>'
        '<button type="button" data-action="save" aria-label="Save the chart as PNG">PNG</button>'
        f'<div role="group" aria-label="Scale">{scale}</div></div></header><div class="stage">'
        f'<div class="plot waiting" role="img" tabindex="0" aria-label="{safe(chart.spoken)}">'
        '</div><div class="tip" role="status" hidden></div></div>'
        f'<p class="warn lost" hidden></p>{notes}{_chips(chart)}{_keys(chart)}'
        f"{definitions(chart.meaning, kind='meaning')}"
        '<details class="table"><summary>Formula and numbers</summary>'
        f"{definitions(chart.formulas, kind='meaning', text=formula)}{name}"
        '<div class="numbers" tabindex="0" role="region" aria-label="Numbers"></div>'
        "</details></article>"
    )


def _mostly_shown(statistic: str, charts: Sequence[Chart]) -> bool:
    having = [chart for chart in charts if statistic in chart.statistics]
    return 2 * sum(statistic in chart.shown for chart in having) > len(having)


def _chips(chart: Chart) -> str:
    if len(chart.statistics) < 2:
        return ""
    chips = "".join(
        _chip(
            one,
            "statistic",
            on=one in chart.shown,
            dash=DASHES[dash_of(one, headline=chart.statistics[0])],
        )
        for one in chart.statistics
    )
    return f'<div class="chips" role="group" aria-label="Lines">{chips}</div>'


def _chip(statistic: str, kind: str, *, on: bool, dash: str | None = None) -> str:
    line = (
        ""
        if dash is None
        else '<svg viewBox="0 0 30 8" aria-hidden="true">'
        f'<line x1="1" y1="4" x2="29" y2="4" stroke-dasharray="{dash}"/></svg>'
    )
    words = statistic_in_words(statistic).removesuffix(" token")
    return (
        f'<button type="button" class="chip" data-{kind}="{html.escape(statistic)}" '
        f'aria-pressed="{str(on).lower()}">{line}{safe(words)}</button>'
    )


def _keys(chart: Chart) -> str:
    """The rows of the key, a list for every group of them."""
    lists: list[str] = []
    for group in dict.fromkeys(row.group for row in chart.rows):
        rows = "".join(
            f'<li><button type="button" class="key" data-series="{at}" '
            f'aria-pressed="{str(row.shown).lower()}" style="--c:{css_colour(row.colour)}">'
            f"{marker(row.symbol, dash=row.dash, width=row.width, band=row.band)}"
            f'<span class="label">{safe(row.label)}</span>'
            f'<span class="law">{"<br>".join(law(one) for one in row.details)}</span></button></li>'
            for at, row in enumerate(chart.rows)
            if row.group == group
        )
        heading = f'<li class="soft">{safe(group)}</li>' if group else ""
        lists.append(f"<ul>{heading}{rows}</ul>")
    return f'<div class="keys">{"".join(lists)}</div>'
