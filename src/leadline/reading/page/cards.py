"""The charts of the page: each a card with its switches, its key, its meaning and its numbers."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from leadline.reading.show.markup import definitions, formula, law, marker, safe, segmented
from leadline.reading.show.palette import DASHES, css_colour, dash_of
from leadline.reading.show.wording import number, statistic_in_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.reading.page.figures import Chart, Series
    from leadline.record import Profile

__all__ = ["chart_card", "chart_groups", "controls", "row_name"]

_APART = 0.2
"""The share by which a line must leave the headline to have its own law in the key."""


def controls(charts: Sequence[Chart], *, depths_differ: bool) -> str:
    """The switches that act on all charts."""
    scales = {"suited": "auto", "linear": "linear", "log": "log"}
    parts = [("Scale", segmented("scale-all", scales, chosen="suited"))]
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


def _mostly_shown(statistic: str, charts: Sequence[Chart]) -> bool:
    having = [chart for chart in charts if statistic in chart.statistics]
    return 2 * sum(statistic in chart.shown for chart in having) > len(having)


def chart_groups(charts: Sequence[Chart]) -> list[tuple[str, list[Chart]]]:
    """Group charts by the first part of the quantity's name."""
    groups: dict[str, list[Chart]] = {}
    for chart in charts:
        group = chart.quantity.name.partition(".")[0].replace("_", " ")
        groups.setdefault(group[:1].upper() + group[1:], []).append(chart)
    return list(groups.items())


def chart_card(chart: Chart, names: Sequence[str]) -> str:
    """One chart with its switches, its key, its meaning and its table of numbers."""
    quantity, key = chart.quantity, chart.key
    barred = {} if chart.any_positive else {"log": "No value is positive."}
    scales = {"linear": "linear", "log": "log"}
    scale = segmented("scale", scales, chosen=quantity.scale, barred=barred)
    more = [
        ("Formula", quantity.formula),
        ("Unit", quantity.unit),
        ("Source", quantity.source),
    ]
    return "".join(
        [
            f'<article class="card chart" id="{key}" aria-labelledby="{key}-title">',
            f'<header><div><h4 id="{key}-title">{safe(quantity.title)}</h4> ',
            f'<span class="symbol">{formula(quantity.symbol)}</span></div>',
            f'<div role="group" aria-label="Scale">{scale}</div></header>',
            f'<div class="plot waiting" role="img" aria-label="{_spoken(chart, names)}"></div>',
            '<p class="warn lost" hidden></p>',
            _gaps(chart),
            _chips(chart),
            _keys(chart, names),
            _absent(chart, names),
            definitions([("High", quantity.high), ("Low", quantity.low)], kind="meaning"),
            '<details class="table"><summary>Formula and numbers</summary>',
            definitions(more, kind="meaning", text=formula),
            f'<p class="soft small">{safe(quantity.name)}</p>',
            '<div class="numbers" tabindex="0" role="region" aria-label="Numbers"></div>',
            "</details></article>",
        ]
    )


def row_name(row: Series, names: Sequence[str]) -> str:
    """The name of a row of the key: the point, with several records the record too."""
    if len(names) == 1:
        return row.label
    return f"{names[row.record]}, {row.label}" if row.label else names[row.record]


def _spoken(chart: Chart, names: Sequence[str]) -> str:
    lines = "; ".join(
        f"{row_name(row, names)}: {number(row.headline.first)} to {number(row.headline.last)}, "
        f"{row.headline.growth.text}"
        for row in chart.series
    )
    return html.escape(f"{chart.quantity.title} over depth. {lines}")


def _gaps(chart: Chart) -> str:
    if not chart.gaps:
        return ""
    lines = " ".join(safe(gap) for gap in chart.gaps)
    return f'<p class="warn gaps">Not finite, marked × on the edge of the chart: {lines}</p>'


def _absent(chart: Chart, names: Sequence[str]) -> str:
    present = {row.record for row in chart.series}
    absent = [name for at, name in enumerate(names) if at not in present]
    return f'<p class="soft small">Not measured in {safe(", ".join(absent))}.</p>' if absent else ""


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
    sample = (
        "" if dash is None else f'<line x1="1" y1="4" x2="29" y2="4" stroke-dasharray="{dash}"/>'
    )
    line = f'<svg viewBox="0 0 30 8" aria-hidden="true">{sample}</svg>' if sample else ""
    words = statistic_in_words(statistic).removesuffix(" token")
    return (
        f'<button type="button" class="chip" data-{kind}="{html.escape(statistic)}" '
        f'aria-pressed="{str(on).lower()}">{line}{safe(words)}</button>'
    )


def _keys(chart: Chart, names: Sequence[str]) -> str:
    lists: list[str] = []
    for panel, title in enumerate(chart.panels):
        rows = "".join(
            f'<li><button type="button" class="key" data-series="{at}" aria-pressed="true" '
            f'style="--c:{css_colour(row.colour)}">{marker(row.symbol)}'
            f'<span class="label">{safe(row_name(row, names))}</span>'
            f'<span class="law">{_laws(chart, row)}</span></button></li>'
            for at, row in enumerate(chart.series)
            if row.panel == panel
        )
        heading = f'<li class="soft">{safe(title)}</li>' if title else ""
        lists.append(f"<ul>{heading}{rows}</ul>")
    return f'<div class="keys">{"".join(lists)}</div>'


def _laws(chart: Chart, row: Series) -> str:
    """Where the headline begins and ends, and by which law; others where they tell more."""
    laws: list[str] = []
    for line in row.lines:
        if line.statistic not in chart.shown or not _tells_more(line, row.headline):
            continue
        words = "" if line.statistic == "value" else f"{statistic_in_words(line.statistic)} "
        span = f"{number(line.first)} → {number(line.last)}"
        laws.append(f"{safe(words)}{span}, {law(line.growth.text)}")
    return "<br>".join(laws)


def _tells_more(line: Profile, headline: Profile) -> bool:
    """True for the headline itself, and for a line that leaves it by more than a fifth."""
    if line is headline or line.layers != headline.layers:
        return True
    return any(
        not abs(mine - other) <= _APART * abs(other)
        for mine, other in zip(line.values, headline.values, strict=True)
    )
