"""The parts of the page around the charts, each a function from records to HTML."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from leadline.reading.map.cells import is_sweep
from leadline.reading.page.cards import chart_groups, row_name
from leadline.reading.page.drawing import anatomy_drawing, sparkline
from leadline.reading.page.headline import balance_sentence, comparing_sentences, facts, sentences
from leadline.reading.page.run_headline import (
    kind_of_report,
    run_facts,
    run_sentences,
)
from leadline.reading.show.blocks import read_blocks
from leadline.reading.show.markup import definitions, dot, law, marker, safe
from leadline.reading.show.palette import css_colour, point_colour, record_colour
from leadline.reading.show.wording import number
from leadline.record.provenance import number_at, text_at, value_at
from leadline.record.run.ending import is_cell

if TYPE_CHECKING:
    from leadline.reading.map.trainability import Trainability
    from leadline.reading.page.figures import Chart, Series
    from leadline.reading.page.headline import Fact
    from leadline.record import Record

__all__ = ["anatomy", "glance", "provenance", "summary"]

_ROLES = ("attention", "mlp", "cross-attention", "mixer", "branch")
# Parts of the provenance that have a place of their own on the page.
_ELSEWHERE = (("anatomy", "layers"), ("anatomy", "unusual"), ("sweep", "description"))
_FIRST = ("model", "anatomy", "input", "loss", "passes", "coverage", "run", "versions")
_READING = (
    '<p class="lead soft">The stream runs downwards. Each sublayer reads it, and its update is '
    "added at the plus sign. The books balance when the stream before, times what is kept of it, "
    "plus the update equals the stream after; the difference is counted in eps, the rounding of "
    "the stream.</p>"
)


def summary(
    records: Sequence[Record],
    names: Sequence[str],
    title: str,
    *,
    training_map: Trainability | None,
) -> str:
    """The headline: names, findings, sentences, facts. `training_map` is that of a sweep."""
    if len(records) == 1:
        lines = run_sentences(records[0], training_map)
        if (records[0].stacks and training_map is None) or not lines:
            lines += sentences(records[0])
        kind = text_at(records[0].provenance, "model", "class")
        eyebrow = ": ".join(word for word in (kind_of_report(records[0]), kind) if word)
    else:
        lines = comparing_sentences(records, names)
        eyebrow = f"Comparison of {len(records)} records"
    paragraphs = "".join(f"<p>{law(sentence)}</p>" for sentence in lines if sentence)
    return (
        '<section id="summary" aria-labelledby="headline">'
        f'<p class="eyebrow">{safe(eyebrow)}</p><h1 id="headline">{safe(title)}</h1>'
        f"{_findings(records, names)}"
        f'<div class="sentences">{paragraphs}</div>{_facts(records, names)}</section>'
    )


def glance(charts: Sequence[Chart], names: Sequence[str]) -> str:
    """One row per line: its shape, where it starts and ends, its law of growth."""
    rows: list[str] = []
    for group, members in chart_groups(charts):
        rows.append(f'<tr class="group"><th colspan="5" scope="colgroup">{safe(group)}</th></tr>')
        rows += [
            _glance_row(chart, row, names, first=at == 0)
            for chart in members
            for at, row in enumerate(chart.series)
        ]
    return (
        '<section id="glance" aria-labelledby="glance-title">'
        '<h2 id="glance-title">At a glance</h2><div class="card glance scroll"><table>'
        '<thead><tr><th scope="col">Quantity</th><th scope="col">Line</th>'
        '<th scope="col">Over depth</th><th scope="col" class="number">First → last</th>'
        '<th scope="col">Growth</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div></section>"
    )


def anatomy(records: Sequence[Record], names: Sequence[str]) -> str:
    """The drawing of every stack, with the balance."""
    several = len(records) > 1
    cards = "".join(
        _anatomy_of(record, name if several else "", index)
        for index, (record, name) in enumerate(zip(records, names, strict=True))
    )
    return (
        '<section id="anatomy" class="anatomy" aria-labelledby="anatomy-title">'
        f'<h2 id="anatomy-title">Anatomy</h2>{_READING if several else ""}'
        f'<div class="{"records" if several else "record"}">{cards}</div></section>'
    )


def provenance(records: Sequence[Record], names: Sequence[str]) -> str:
    """Where the numbers came from: a table per topic, one column per record."""
    columns = [_flat(record.provenance) for record in records]
    keys = list(dict.fromkeys(key for column in columns for key in column))
    heads = list(dict.fromkeys(key[0] for key in keys))
    heads.sort(key=lambda one: _FIRST.index(one) if one in _FIRST else len(_FIRST))
    top = ""
    if len(records) > 1:
        cells = "".join(
            f'<th scope="col">{dot(record_colour(at))}{safe(name)}</th>'
            for at, name in enumerate(names)
        )
        top = f"<thead><tr><td></td>{cells}</tr></thead>"
    tables: list[str] = []
    for head in heads:
        title = (head[:1].upper() + head[1:]).replace("_", " ")
        rows = "".join(
            f'<tr><th scope="row">{safe(key[1])}</th>'
            + "".join(f"<td>{safe(column.get(key, '–'))}</td>" for column in columns)
            + "</tr>"
            for key in keys
            if key[0] == head
        )
        tables.append(
            f'<div class="card scroll"><table><caption>{safe(title)}</caption>{top}'
            f"<tbody>{rows}</tbody></table></div>"
        )
    kind = "provenance" if len(records) < 3 else "provenance wide"
    return (
        '<section id="provenance" aria-labelledby="provenance-title">'
        f'<h2 id="provenance-title">Provenance</h2><div class="{kind}">{"".join(tables)}</div>'
        "</section>"
    )


def _findings(records: Sequence[Record], names: Sequence[str]) -> str:
    findings = [
        (finding, f"{name}: " if len(records) > 1 else "")
        for record, name in zip(records, names, strict=True)
        for finding in record.findings
    ]
    findings.sort(key=lambda pair: pair[0].severity != "serious")
    items: list[str] = []
    for finding, whose in findings:
        serious = finding.severity == "serious"
        items.append(
            f'<li class="{"serious" if serious else "note"}">'
            f"<b>{'Serious' if serious else 'Note'}</b>{safe(whose + finding.verdict)}</li>"
        )
    return f'<ul class="findings" aria-label="Findings">{"".join(items)}</ul>' if items else ""


def _all_facts(record: Record) -> list[Fact]:
    """What was trained and what was measured; models of a sweep differ in what is measured."""
    trained = run_facts(record)
    alike = record.stacks and not is_sweep(record)
    return trained + (facts(record) if alike or not trained else [])


def _facts(records: Sequence[Record], names: Sequence[str]) -> str:
    if len(records) == 1:
        tiles = "".join(
            f"<div><dt>{safe(fact.label)}</dt><dd>{safe(fact.value)}"
            f"<small>{safe(fact.detail)}</small></dd></div>"
            for fact in _all_facts(records[0])
        )
        return f'<dl class="facts card">{tiles}</dl>'
    facts_by_record = [{fact.label: fact for fact in _all_facts(record)} for record in records]
    labels = list(dict.fromkeys(label for one in facts_by_record for label in one))
    top = "".join(
        f'<th scope="col">{dot(record_colour(at))}{safe(name)}</th>'
        for at, name in enumerate(names)
    )
    rows: list[str] = []
    for label in labels:
        cells = "".join(
            f'<td>{safe(one[label].value)} <small class="soft">{safe(one[label].detail)}</small></td>'
            if label in one
            else "<td>–</td>"
            for one in facts_by_record
        )
        rows.append(f'<tr><th scope="row">{safe(label)}</th>{cells}</tr>')
    return (
        '<div class="card scroll compared"><table>'
        f"<thead><tr><td></td>{top}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _glance_row(chart: Chart, row: Series, names: Sequence[str], *, first: bool) -> str:
    line = row.headline
    link = f'<a href="#{chart.key}">{safe(chart.quantity.title)}</a>' if first else ""
    stack = chart.panels[row.panel]
    name = f"{stack}, {row_name(row, names)}" if stack else row_name(row, names)
    spark = sparkline([float(value) for value in line.values], log=chart.quantity.scale == "log")
    return (
        f'<tr style="--c:{css_colour(row.colour)}"><th scope="row">{link}</th>'
        f"<td>{marker(row.symbol)}{safe(name)}</td><td>{spark}</td>"
        f'<td class="number">{number(line.first)} → {number(line.last)}</td>'
        f'<td class="soft wide">{law(line.growth.text)}</td></tr>'
    )


def _anatomy_of(record: Record, name: str, index: int) -> str:
    known = record.provenance
    blocks = read_blocks(cast("Mapping[str, Any]", value_at(known, "anatomy") or {}))
    colours = {role: css_colour(point_colour(role)) for role in _ROLES}
    title = f"<h3>{dot(record_colour(index))}{safe(name)}</h3>" if name else ""
    entries = [
        ("Found by", text_at(known, "anatomy", "source")),
        ("Judged on", _judged(known)),
        ("Rounding of", text_at(known, "anatomy", "balance_dtype")),
        ("Write", "; ".join(dict.fromkeys(w.law for b in blocks for w in b.writes if w.law))),
        ("Remarks", _in_words(value_at(known, "anatomy", "remarks") or [], nothing="")),
    ]
    figures: list[str] = []
    for stack in dict.fromkeys(block.stack for block in blocks):
        members = [block for block in blocks if block.stack == stack]
        lanes = int(number_at(known, "anatomy", "stacks", stack, "lanes") or 1)
        width = number_at(known, "anatomy", "stacks", stack, "width")
        size = f", width {width:.0f}" if width is not None else ""
        layers = f"{len(members)} layer{'' if len(members) == 1 else 's'}"
        figures.append(
            f"<figure><figcaption><strong>{safe(stack)}</strong>"
            f'<span class="soft small"> {layers}{size}</span></figcaption>'
            f"{anatomy_drawing(members, lanes=lanes, colours=colours)}</figure>"
        )
    unusual = cast("Sequence[str]", value_at(known, "anatomy", "unusual") or [])
    note = "" if blocks else "<p>This record does not hold the blocks of the model.</p>"
    return (
        f'<div class="card"><div>{title}<p class="balance">{safe(balance_sentence(known))}</p>'
        f"{''.join(f'<p>Unusual: {safe(sentence)}</p>' for sentence in unusual)}"
        f"{definitions(entries, kind='plain small')}{note}"
        f"{'' if name else _READING}</div>{''.join(figures)}</div>"
    )


def _flat(known: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """Flatten the provenance into (topic, entry) and text.

    Blocks, attention and the cells of a sweep are shown elsewhere. Single values share the topic
    `run`.
    """
    entries: dict[tuple[str, str], str] = {}
    for head, value in known.items():
        if head == "attention" or is_cell(head):
            continue
        if not isinstance(value, Mapping):
            entries["run", head] = _in_words(value)
            continue
        for key, item in cast("Mapping[str, object]", value).items():
            if (head, key) not in _ELSEWHERE:
                entries[head, key.replace("_", " ")] = _in_words(item)
    return entries


def _judged(known: Mapping[str, Any]) -> str:
    judged = number_at(known, "anatomy", "balance_judged")
    unjudged = cast("Sequence[object]", value_at(known, "anatomy", "balance_unjudged") or [])
    if judged is None:
        return ""
    layers = f"{judged:.0f} layer{'' if judged == 1 else 's'}"
    return f"{layers}; {len(unjudged)} not finite" if unjudged else layers


def _in_words(value: object, *, nothing: str = "none") -> str:
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else number(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        inside = cast("Mapping[str, object]", value)
        if set(inside) == {"what", "why"}:
            return f"{inside['what']} ({inside['why']})"
        items = inside.items()
        return ", ".join(f"{key} {_in_words(item)}" for key, item in items) or nothing
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "; ".join(_in_words(item) for item in cast("Sequence[object]", value)) or nothing
    return str(value)
