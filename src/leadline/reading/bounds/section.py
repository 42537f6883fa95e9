"""The part of the page about bounds: on attention, on rank collapse, and laws of depth.

Attention has charts with the bounds, a table, and a map of the heads; rank collapse and depth have
a table each, their readings stand among the charts over depth.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from leadline.errors import RecordError
from leadline.reading.bounds.attention_facts import attention_sublayers, head_readings
from leadline.reading.bounds.chart import NORM, draw_bounds_charts
from leadline.reading.bounds.chart_lines import attention_places, number_range, power, power_range
from leadline.reading.bounds.evaluate import bounds, has_attention, has_collapse, has_depth
from leadline.reading.bounds.head_map import head_map
from leadline.reading.bounds.table import BoundsTable
from leadline.reading.bounds.text import (
    applies_text,
    legend,
    place_text,
    reasons,
    violations,
    which_places_differ,
)
from leadline.reading.show.card import chart_card
from leadline.reading.show.markup import dot, formula, safe
from leadline.reading.show.palette import record_colour
from leadline.reading.show.wording import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.reading.bounds.table import BoundResult
    from leadline.reading.show.chart import Chart
    from leadline.record import Record

__all__ = ["bounds_topics"]

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


_TOPICS = {
    "attention": ("attention-bounds", "Attention and its bounds", _LEAD),
    "collapse": ("collapse-bounds", "Rank collapse and its bounds", _COLLAPSE_LEAD),
    "depth": ("depth-laws", "Laws of depth", _DEPTH_LEAD),
}
"""The identifier, the title and the first sentences of every family."""


def bounds_topics(
    records: Sequence[Record], names: Sequence[str]
) -> list[tuple[str, str, str, tuple[Chart, ...], str]]:
    """Return identifier, title, content, charts and a remark for each family that has bounds."""
    tables = {at: table for at, one in enumerate(records) if (table := _bounds_of(one)) is not None}
    topics: list[tuple[str, str, str, tuple[Chart, ...], str]] = []
    for family, (key, title, lead) in _TOPICS.items():
        charts: list[Chart] = []
        content, count, applying, broken = lead, 0, 0, 0
        for at, every in tables.items():
            table = replace(every, bounds=tuple(b for b in every.bounds if b.family == family))
            if not table.bounds:
                continue
            drawn = (
                draw_bounds_charts(records[at], table, key=f"attention-{at + 1}")
                if family == "attention"
                else []
            )
            name = names[at] if len(names) > 1 else ""
            heading = f"<h3>{dot(record_colour(at))}{safe(name)}</h3>" if name else ""
            about = _about_attention(records[at]) if family == "attention" else ""
            cards = "".join(map(chart_card, drawn))
            content += (
                f"{heading}{_findings(table)}"
                + (f'<p class="soft small">{safe(about)}</p>' if about else "")
                + (f'<div class="wide-charts">{cards}</div>' if cards else "")
                + _table(table)
                + (_maps(records[at]) if family == "attention" else "")
            )
            charts += drawn
            count += len(table.bounds)
            applying += sum(bool(bound.applying) for bound in table.bounds)
            broken += sum(bool(bound.violations) for bound in table.bounds)
        if count:
            remark = f"{applying} of {count} predictions apply"
            remark += f", {broken} violated" if broken else ""
            topics.append(
                (key, title, f'<div class="bounded">{content}</div>', tuple(charts), remark)
            )
    return topics


def _bounds_of(record: Record) -> BoundsTable | None:
    if not (has_attention(record) or has_collapse(record) or has_depth(record)):
        return None
    try:
        return bounds(record)
    except RecordError:  # no law of depth is about its design, and there is nothing else
        return None


def _findings(table: BoundsTable) -> str:
    broken = "".join(
        f'<li class="serious"><b>Violated</b>{safe(line.removeprefix("VIOLATED: "))}</li>'
        for line in violations(table)
    )
    return f'<ul class="findings" aria-label="Violated bounds">{broken}</ul>' if broken else ""


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
