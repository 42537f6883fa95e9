"""The part of the page about bounds: on attention, on rank collapse, and laws of depth.

Attention has charts with the bounds, a table, and a map of the heads; rank collapse and depth have
a table each, their readings stand among the charts over depth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from leadline.errors import RecordError
from leadline.reading.bounds.attention_facts import attention_sublayers, head_readings
from leadline.reading.bounds.chart import NORM, draw_bounds_charts
from leadline.reading.bounds.chart_lines import attention_places, number_range, power, power_range
from leadline.reading.bounds.evaluate import bounds, has_attention, has_collapse, has_depth
from leadline.reading.bounds.head_map import head_map
from leadline.reading.bounds.table import FAMILIES, BoundsTable
from leadline.reading.bounds.text import (
    applies_text,
    legend,
    place_text,
    reasons,
    violations,
    which_places_differ,
)
from leadline.reading.show.markup import dot, formula, safe, segmented
from leadline.reading.show.palette import DASHES, css_colour, record_colour
from leadline.reading.show.wording import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.reading.bounds.chart import BoundsChart, KeyRow
    from leadline.reading.bounds.table import BoundResult
    from leadline.record import Record

__all__ = ["AttentionPart", "attention_parts", "attention_section"]

_LEAD = (
    '<p class="lead soft">How much can attention amplify? Measured is the spectral norm of the '
    "attention matrices; the lines above it are what theorems predict from the weights, the mask "
    "and the length of the input, wherever their assumptions hold.</p>"
)
_COLLAPSE_LEAD = (
    '<p class="lead soft">Do tokens become equal? Measured is how far they still differ after each '
    "layer; predicted is what theorems say of it from the weights and the first residual, wherever "
    "their assumptions hold.</p>"
)
_DEPTH_LEAD = (
    '<p class="lead soft">How does the stream grow with the layers? A law gives a band, of which '
    "both ends stand below; most are about the mean over random weights, so one model may lie a "
    "little outside.</p>"
)
_KINDS = {"measured": "Measured", "applies": "Bounds that apply", "fails": "Bounds that do not"}


@dataclass(frozen=True, slots=True)
class AttentionPart:
    """What the section shows of one record; `at` is the record's number among all.

    `table` has the bounds on attention, `collapse` those on rank collapse, `depth` the laws of
    depth; each may be empty.
    """

    at: int
    record: Record
    table: BoundsTable
    charts: tuple[BoundsChart, ...]
    collapse: BoundsTable
    depth: BoundsTable


def attention_parts(records: Sequence[Record]) -> list[AttentionPart]:
    """Compute the bounds of every record that has readings which bounds are about."""
    parts: list[AttentionPart] = []
    for at, record in enumerate(records):
        with_attention = has_attention(record)
        if not with_attention and not has_collapse(record) and not has_depth(record):
            continue
        try:
            results = bounds(record)
        except RecordError:  # no law of depth is about its design, and there is nothing else
            continue
        table, collapse, depth = (
            replace(results, bounds=tuple(b for b in results.bounds if b.family == family))
            for family in FAMILIES
        )
        key = f"attention-{at + 1}"
        charts = tuple(draw_bounds_charts(record, table, key=key)) if with_attention else ()
        parts.append(AttentionPart(at, record, table, charts, collapse, depth))
    return parts


def attention_section(parts: Sequence[AttentionPart], names: Sequence[str]) -> str:
    """The section; empty where no record has readings which bounds are about."""
    if not parts:
        return ""
    attention = "".join(_part(part, _name(part, names)) for part in parts if part.table.bounds)
    collapse = "".join(
        _plain(part.collapse, _title(part, _name(part, names)))
        for part in parts
        if part.collapse.bounds
    )
    depth = "".join(
        _plain(part.depth, _title(part, _name(part, names))) for part in parts if part.depth.bounds
    )
    topics = [
        (key, f"{title}</h2>{lead}{body}")
        for key, title, lead, body in (
            ("attention", "Attention and its bounds", _LEAD, attention),
            ("collapse", "Rank collapse and its bounds", _COLLAPSE_LEAD, collapse),
            ("depth", "Laws of depth", _DEPTH_LEAD, depth),
        )
        if body
    ]
    # The section is named by its first title.
    titles = ["attention", *(key for key, _ in topics[1:])]
    inside = "".join(
        f'<h2 id="{key}-title">{body}' for key, (_, body) in zip(titles, topics, strict=True)
    )
    return (
        '<section id="attention" class="attention" aria-labelledby="attention-title">'
        f"{inside}</section>"
    )


def _name(part: AttentionPart, names: Sequence[str]) -> str:
    return names[part.at] if len(names) > 1 else ""


def _title(part: AttentionPart, name: str) -> str:
    return f"<h3>{dot(record_colour(part.at))}{safe(name)}</h3>" if name else ""


def _plain(table: BoundsTable, title: str) -> str:
    return f"{title}{_findings(table)}{_table(table)}"


def _part(part: AttentionPart, name: str) -> str:
    cards = "".join(_card(chart) for chart in part.charts)
    return (
        f"{_title(part, name)}{_findings(part.table)}"
        f'<p class="soft small">{safe(_about_attention(part.record))}</p>'
        f'<div class="wide-charts">{cards}</div>{_table(part.table)}{_maps(part.record)}'
    )


def _findings(table: BoundsTable) -> str:
    broken = "".join(
        f'<li class="serious"><b>Violated</b>{safe(line.removeprefix("VIOLATED: "))}</li>'
        for line in violations(table)
    )
    return f'<ul class="findings" aria-label="Violated bounds">{broken}</ul>' if broken else ""


def _card(chart: BoundsChart) -> str:
    scale = segmented("scale", {"linear": "linear", "log": "log"}, chosen=chart.scale)
    cut = f'<p class="soft small">{safe(chart.cut)}</p>' if chart.cut else ""
    return (
        f'<article class="card chart" id="{chart.key}" aria-labelledby="{chart.key}-title">'
        f'<header><div><h4 id="{chart.key}-title">{safe(chart.title)}</h4> '
        f'<span class="symbol">{formula(chart.symbol)}</span></div>'
        f'<div role="group" aria-label="Scale">{scale}</div></header>'
        f'<div class="plot waiting" role="img" aria-label="{safe(chart.spoken)}"></div>'
        f'<p class="warn lost" hidden></p>{cut}{_keys(chart)}'
        '<details class="table"><summary>Numbers</summary>'
        '<div class="numbers" tabindex="0" role="region" aria-label="Numbers"></div>'
        "</details></article>"
    )


def _keys(chart: BoundsChart) -> str:
    lists: list[str] = []
    for kind, title in _KINDS.items():
        rows = "".join(
            f'<li><button type="button" class="key" data-series="{at}" '
            f'aria-pressed="{str(row.shown).lower()}" style="--c:{css_colour(row.colour)}">'
            f'{_sample(row)}<span class="label">{safe(row.label)}</span>'
            f'<span class="law">{safe(row.detail)}</span></button></li>'
            for at, row in enumerate(chart.rows)
            if row.kind == kind
        )
        if rows:
            lists.append(f'<ul><li class="soft">{title}</li>{rows}</ul>')
    return f'<div class="keys">{"".join(lists)}</div>'


def _sample(row: KeyRow) -> str:
    """A short piece of the line as the chart draws it."""
    shape = {
        "circle": '<circle cx="13" cy="8" r="3.6"/>',
        "square": '<rect x="9.5" y="4.5" width="7" height="7"/>',
        "diamond-open": '<path d="M13 3.5l4.5 4.5-4.5 4.5-4.5-4.5z" class="hollow"/>',
    }.get(row.symbol, "")
    band = row.kind == "measured" and not row.symbol
    line = (
        '<path d="M1 2h24v12h-24z" fill-opacity="0.2" stroke-width="0.5"/>'
        if band
        else f'<path d="M1 8h24" stroke-width="{row.width:g}" '
        f'stroke-dasharray="{DASHES[row.dash]}"/>'
    )
    return f'<svg class="marker" viewBox="0 0 26 16" aria-hidden="true">{line}{shape}</svg>'


def _table(table: BoundsTable) -> str:
    differing = which_places_differ(table)
    rows = "".join(_row(bound, differing) for bound in table.bounds)
    why = "".join(f"<li>{safe(line)}</li>" for line in reasons(table))
    reason_list = f'<ul class="small reasons">{why}</ul>' if why else ""
    return (
        '<div class="card bounds scroll"><table><thead><tr><th scope="col">Bound</th>'
        '<th scope="col">Applies to</th><th scope="col" class="number">Predicted</th>'
        '<th scope="col" class="number">Measured</th><th scope="col" class="number">Ratio</th>'
        f'<th scope="col">At</th></tr></thead><tbody>{rows}</tbody></table>'
        f'<p class="soft small">{safe(legend(table))}</p>{reason_list}</div>'
    )


def _row(bound: BoundResult, differing: tuple[bool, bool]) -> str:
    closest = bound.closest
    rows = bound.applying or bound.rows
    predicted = [row.predicted for row in rows if row.predicted is not None]
    measured = [row.measured for row in rows if row.measured is not None]
    span = power_range if bound.log10 else number_range
    kind = "violated" if bound.violations else "applies" if bound.applying else "fails"
    cells = [
        ("Applies to", "", safe(applies_text(bound))),
        ("Predicted", "number", formula(span(predicted) if predicted else "–")),
        ("Measured", "number", formula(span(measured) if measured else "–")),
        ("Ratio", "number", formula(_ratio(bound))),
        ("At", "", "" if closest is None else safe(place_text(closest, differing))),
    ]
    body = "".join(
        f'<td class="{kind_of}" data-label="{label}">{text}</td>' for label, kind_of, text in cells
    )
    return (
        f'<tr class="{kind}"><th scope="row">{safe(bound.label)}'
        f'<span class="soft small">{safe(bound.title)}</span>'
        f'<span class="symbol small">{safe(bound.statement)}</span></th>{body}</tr>'
    )


def _ratio(bound: BoundResult) -> str:
    """Write measured / predicted where they are closest."""
    row = bound.closest
    if row is None:
        return "–"
    if not bound.log10 or row.measured is None or row.predicted is None:
        return number(row.ratio)
    return power(row.measured - row.predicted)


def _maps(record: Record) -> str:
    """A map of layers and heads for every attention role with more than one head."""
    tops = head_readings(record, NORM, "max")
    drawn: list[str] = []
    places = attention_places(record)
    for place in places:
        values = {
            (attention.layer, head): tops.at(attention.address, head)[0].value
            for attention in place.sublayers
            for head in tops.heads(attention.address)
        }
        finite = {at: value for at, value in values.items() if math.isfinite(value)}
        if len(values) < 2 or not finite:
            continue
        low, high = min(finite, key=lambda at: finite[at]), max(finite, key=lambda at: finite[at])
        spoken = (
            f"from {number(finite[low])} (layer {low[0]}, head {low[1]}, faintest) "
            f"to {number(finite[high])} (layer {high[0]}, head {high[1]}, darkest)"
        )
        drawn.append(
            f"<figure><figcaption><strong>{safe(place.title)}</strong>"
            f'<span class="soft small"> layers across, heads down; {safe(spoken)}</span>'
            f'</figcaption><div class="scroll">'
            f"{head_map(values, spoken=f'Largest spectral norm of every head, {spoken}')}"
            "</div></figure>"
        )
    if not drawn:
        return ""
    return (
        '<div class="card headmaps"><h4>Largest spectral norm of every head</h4>'
        f"{''.join(drawn)}</div>"
    )


def _about_attention(record: Record) -> str:
    """Describe the attention that was measured: sublayers, heads, masks, positions, proof."""
    sublayers = attention_sublayers(record)
    heads = sum(one.heads for one in sublayers)
    masks = ", ".join(dict.fromkeys(one.mask for one in sublayers))
    positions = ", ".join(dict.fromkeys(one.positions for one in sublayers))
    lengths = sorted({shape.queries for one in sublayers for shape in one.shapes})
    span = f"{lengths[0]}" if lengths[:1] == lengths[-1:] else f"{lengths[0]} to {lengths[-1]}"
    how = {"kernel": "recomputed from queries and keys", "weights": "as the model returns it"}
    ways = " or ".join(
        dict.fromkeys(how.get(one.route, one.route) for one in sublayers if one.route)
    )
    proofs = [one.proof_eps for one in sublayers if one.proof_eps is not None]
    proof = f"; A V equals the output of the model to {number(max(proofs))} eps" if proofs else ""
    loose = sum(one.loose for one in sublayers)
    wide = f" {loose} certified intervals are loose." if loose else ""
    return (
        f"{len(sublayers)} attention sublayer{'' if len(sublayers) == 1 else 's'}, {heads} heads, "
        f"{span if lengths else '?'} queries, mask: {masks}, positions: {positions}"
        f"{f'; attention {ways}' if ways else ''}{proof}.{wide}"
    )
