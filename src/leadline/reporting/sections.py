"""The parts of the page around the charts, each a function from records to HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from leadline.record.provenance import number_at, text_at, value_at
from leadline.reporting.cards import chart_groups, row_name
from leadline.reporting.drawing import anatomy_drawing, read_blocks, sparkline
from leadline.reporting.headline import balance_sentence, comparing_sentences, facts, sentences
from leadline.reporting.markup import definitions, dot, safe
from leadline.reporting.palette import css_colour, point_colour, record_colour
from leadline.reporting.wording import number

if TYPE_CHECKING:
    from leadline.record import Record
    from leadline.reporting.figures import Chart, Series

__all__ = ["anatomy", "glance", "provenance", "summary"]

_ROLES = ("attention", "mlp", "cross-attention", "mixer", "branch")
_FIRST = ("model", "anatomy", "input", "loss", "passes", "coverage", "probes", "versions")
_BALANCE = (
    "The stream before each sublayer, times what is kept of it, plus the update equals the stream "
    "after it, to so many units of rounding of the stream."
)


def summary(records: Sequence[Record], names: Sequence[str], title: str) -> str:
    """The headline: names, sentences, findings, facts."""
    if len(records) == 1:
        told = sentences(records[0])
        kind = text_at(records[0].provenance, "model", "class")
        eyebrow = f"Depth report: {kind}" if kind else "Depth report"
    else:
        told = comparing_sentences(records, names)
        eyebrow = f"Comparison of {len(records)} records"
    paragraphs = "".join(f"<p>{safe(sentence)}</p>" for sentence in told)
    return (
        '<section id="summary" aria-labelledby="headline">'
        f'<p class="eyebrow">{safe(eyebrow)}</p><h1 id="headline">{safe(title)}</h1>'
        f'<div class="sentences">{paragraphs}</div>'
        f"{_findings(records, names)}{_facts(records, names)}</section>"
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
        f'<h2 id="anatomy-title">Anatomy</h2><div class="stacks">{cards}</div></section>'
    )


def provenance(records: Sequence[Record], names: Sequence[str]) -> str:
    """Where the numbers came from, one column per record."""
    columns = [_flat(record.provenance) for record in records]
    keys = list(dict.fromkeys(key for column in columns for key in column))
    heads = dict.fromkeys(key[0] for key in keys)
    rows: list[str] = []
    for head in sorted(heads, key=lambda one: _FIRST.index(one) if one in _FIRST else len(_FIRST)):
        title = head[:1].upper() + head[1:]
        inside = [key for key in keys if key[0] == head]
        if any(key[1] for key in inside):
            rows.append(
                f'<tr class="section"><th scope="rowgroup" colspan="{len(records) + 1}">'
                f"{safe(title)}</th></tr>"
            )
        for key in inside:
            cells = "".join(f"<td>{safe(column.get(key, '–'))}</td>" for column in columns)
            rows.append(f'<tr><th scope="row">{safe(key[1] or title)}</th>{cells}</tr>')
    top = ""
    if len(records) > 1:
        cells = "".join(
            f'<th scope="col">{dot(record_colour(at))}{safe(name)}</th>'
            for at, name in enumerate(names)
        )
        top = f'<thead><tr><th scope="col"></th>{cells}</tr></thead>'
    return (
        '<section id="provenance" aria-labelledby="provenance-title">'
        '<h2 id="provenance-title">Provenance</h2><div class="card provenance scroll">'
        f"<table>{top}<tbody>{''.join(rows)}</tbody></table></div></section>"
    )


def _findings(records: Sequence[Record], names: Sequence[str]) -> str:
    found = [
        (finding, f"{name}: " if len(records) > 1 else "")
        for record, name in zip(records, names, strict=True)
        for finding in record.findings
    ]
    found.sort(key=lambda pair: pair[0].severity != "serious")
    items: list[str] = []
    for finding, whose in found:
        serious = finding.severity == "serious"
        items.append(
            f'<li class="{"serious" if serious else "note"}">'
            f"<b>{'Serious' if serious else 'Note'}</b>{safe(whose + finding.verdict)}</li>"
        )
    return f'<ul class="findings" aria-label="Findings">{"".join(items)}</ul>' if items else ""


def _facts(records: Sequence[Record], names: Sequence[str]) -> str:
    if len(records) == 1:
        tiles = "".join(
            f"<div><dt>{safe(fact.label)}</dt><dd>{safe(fact.value)}"
            f"<small>{safe(fact.detail)}</small></dd></div>"
            for fact in facts(records[0])
        )
        return f'<dl class="facts card">{tiles}</dl>'
    found = [{fact.label: fact for fact in facts(record)} for record in records]
    labels = list(dict.fromkeys(label for one in found for label in one))
    top = "".join(
        f'<th scope="col">{dot(record_colour(at))}{safe(name)}</th>'
        for at, name in enumerate(names)
    )
    rows: list[str] = []
    for label in labels:
        cells = "".join(
            f'<td>{safe(one[label].value)}<br><small class="soft">{safe(one[label].detail)}</small>'
            if label in one
            else "<td>–"
            for one in found
        )
        rows.append(f'<tr><th scope="row">{safe(label)}</th>{cells}</tr>')
    return (
        '<div class="card provenance scroll compared"><table>'
        f"<thead><tr><th></th>{top}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _glance_row(chart: Chart, row: Series, names: Sequence[str], *, first: bool) -> str:
    line = row.headline
    link = f'<a href="#{chart.key}">{safe(chart.quantity.title)}</a>' if first else ""
    stack = chart.panels[row.panel]
    name = f"{stack}, {row_name(row, names)}" if stack else row_name(row, names)
    spark = sparkline([float(value) for value in line.values], log=chart.quantity.scale == "log")
    return (
        f'<tr style="--c:{css_colour(row.colour)}"><th scope="row">{link}</th>'
        f'<td><span class="dot"></span>{safe(name)}</td><td>{spark}</td>'
        f'<td class="number">{number(line.first)} → {number(line.last)}</td>'
        f'<td class="soft wide">{safe(line.growth.text)}</td></tr>'
    )


def _anatomy_of(record: Record, name: str, index: int) -> str:
    known = record.provenance
    blocks = read_blocks(cast("Mapping[str, Any]", value_at(known, "anatomy") or {}))
    colours = {role: css_colour(point_colour(role)) for role in _ROLES}
    title = f"<h3>{dot(record_colour(index))}{safe(name)}</h3>" if name else ""
    found = [
        ("Found by", text_at(known, "anatomy", "source")),
        ("Judged on", text_at(known, "anatomy", "judged")),
        ("Arithmetic", text_at(known, "anatomy", "dtype")),
    ]
    note = "" if blocks else "<p>This record does not hold the blocks of the model.</p>"
    cards = [
        f'<div class="card">{title}<p class="balance">{safe(balance_sentence(known))}</p>'
        f'<p class="soft small">{_BALANCE}</p>{definitions(found, kind="plain small")}{note}</div>'
    ]
    for stack in dict.fromkeys(block.stack for block in blocks):
        mine = [block for block in blocks if block.stack == stack]
        lanes = int(number_at(known, "anatomy", "stacks", stack, "lanes") or 1)
        width = number_at(known, "anatomy", "stacks", stack, "width")
        size = f", width {width:.0f}" if width is not None else ""
        whose = f"{name}: " if name else ""
        cards.append(
            f'<figure class="card"><figcaption><strong>{safe(f"{whose}{stack}")}</strong>'
            f'<span class="soft small"> {len(mine)} layers{size}</span></figcaption>'
            f"{anatomy_drawing(mine, lanes=lanes, colours=colours)}</figure>"
        )
    return "".join(cards)


def _flat(known: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """Flatten the provenance into (section, entry) and text; blocks are drawn, not listed."""
    found: dict[tuple[str, str], str] = {}
    for head, value in known.items():
        if not isinstance(value, Mapping):
            found[head, ""] = _in_words(value)
            continue
        for key, item in cast("Mapping[str, object]", value).items():
            if (head, key) != ("anatomy", "layers"):
                found[head, key.replace("_", " ")] = _in_words(item)
    return found


def _in_words(value: object) -> str:
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value, digits=4)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        items = cast("Mapping[str, object]", value).items()
        return ", ".join(f"{key} {_in_words(item)}" for key, item in items) or "none"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "; ".join(_in_words(item) for item in cast("Sequence[object]", value)) or "none"
    return str(value)
