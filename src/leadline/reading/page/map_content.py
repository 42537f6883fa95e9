"""The map of what trains in a sweep, its gauges, curves and cells."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

from leadline.reading.map.picture import trainability_picture
from leadline.reading.map.text import (
    gauge_rows,
    notes,
    prediction_sentence,
    rules,
    spread_text,
    spread_title,
    unmeasured,
    usable_text,
)
from leadline.reading.show.card import chart_card
from leadline.reading.show.markup import dot, safe
from leadline.reading.show.palette import record_colour
from leadline.reading.show.wording import count, number
from leadline.record.provenance import number_at, text_at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leadline.reading.map.places import MapRow
    from leadline.reading.map.trainability import Trainability
    from leadline.reading.show.chart import Chart
    from leadline.record import Record

__all__ = ["LEAD", "map_content"]

LEAD = (
    '<p class="lead soft">Which designs train, and how deep? Each place is a design at a depth: '
    "the median validation loss, and how many seeds train. Beside it stands a gauge, read "
    "early: the one that told failing from training cells best, if any did.</p>"
)


def map_content(
    record: Record, training_map: Trainability, charts: Sequence[Chart], *, name: str, at: int
) -> str:
    """Write the map of one sweep, record number `at`; `name` is empty where it is the only one."""
    title = f"<h3>{dot(record_colour(at))}{safe(name)}</h3>" if name else ""
    items = "".join(
        f"<li>{safe(line)}</li>" for line in [*rules(training_map), *notes(training_map)]
    )
    cards = "".join(map(chart_card, charts))
    curves = f'<h3>Validation loss, row by row</h3><div class="charts">{cards}</div>'
    return (
        f'{title}<div class="card"><div class="scroll">'
        f"{trainability_picture(training_map, alone=False)}</div>"
        f'<ul class="small">{items}</ul></div>'
        f"{_usable(training_map)}{_gauges(training_map)}{curves if cards else ''}"
        f"{_holes(training_map)}{_cells(record)}"
    )


def _usable(training_map: Trainability) -> str:
    rows = "".join(_usable_row(row) for row in training_map.rows)
    return (
        f'<div class="card scroll"><table><caption>Usable {safe(training_map.axis)}: the largest such '
        "that it and every smaller measured one train</caption><thead><tr>"
        '<th scope="col">Row</th><th scope="col">Usable</th>'
        f'<th scope="col">Alone: {safe(spread_title(training_map))}</th>'
        '<th scope="col">Probability to train there, 95 %</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _usable_row(row: MapRow) -> str:
    usable = row.usable
    chance = "–"
    if usable is not None:
        at = [p for p in row.places if p is not None and p.depth == usable.depth]
        if at:
            low, high = at[0].interval
            chance = f"{low:.2f} to {high:.2f} ({at[0].trained} of {at[0].seeds})"
    return (
        f'<tr><th scope="row">{safe(row.name)}</th><td>{safe(usable_text(row))}</td>'
        f"<td>{safe(spread_text(row) or '–')}</td><td>{safe(chance)}</td></tr>"
    )


def _gauges(training_map: Trainability) -> str:
    rows = "".join(
        f'<tr><th scope="row">{safe(row[0])}</th>'
        + "".join(f'<td class="number">{safe(cell)}</td>' for cell in row[1:])
        + "</tr>"
        for row in gauge_rows(training_map)
    )
    sentence = f'<p class="small">{safe(prediction_sentence(training_map))}</p>'
    if not rows:
        return f'<div class="card">{sentence}</div>' if prediction_sentence(training_map) else ""
    heads = "".join(
        f'<th scope="col" class="number">{word}</th>'
        for word in ("AUC at first step", "Best AUC", "At step", "Cells")
    )
    return (
        '<div class="card scroll"><table><caption>Gauges as predictors of failure</caption>'
        f'<thead><tr><th scope="col">Gauge</th>{heads}</tr></thead><tbody>{rows}</tbody></table>'
        f"{sentence}</div>"
    )


def _holes(training_map: Trainability) -> str:
    cells = unmeasured(training_map)
    if not cells:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{safe(run)}</th><td>{safe(status)}</td><td>{safe(reason)}</td></tr>'
        for run, status, reason in cells
    )
    return (
        '<div class="card scroll"><table><caption>Cells that were not measured</caption><thead>'
        '<tr><th scope="col">Cell</th><th scope="col">Ended</th><th scope="col">Reason</th></tr>'
        f"</thead><tbody>{rows}</tbody></table></div>"
    )


def _cells(record: Record) -> str:
    entries = {
        key.partition(":")[2]: cast("Mapping[str, Any]", entry)
        for key, entry in record.provenance.items()
        if key.startswith("cell:")
    }
    heads = "".join(
        f'<th scope="col">{word}</th>'
        for word in ("Cell", "Ended", "Loss", "Steps", "Parameters", "Seconds", "Reason")
    )
    rows = "".join(
        f'<tr><th scope="row">{safe(run)}</th><td>{safe(text_at(entry, "status"))}</td>'
        + "".join(
            f'<td class="number">{_number(number_at(entry, key), key)}</td>'
            for key in ("loss", "steps", "parameters", "seconds")
        )
        + f"<td>{safe(text_at(entry, 'reason'))}</td></tr>"
        for run, entry in entries.items()
    )
    return (
        f'<details class="card"><summary>All {len(entries)} cells that have ended</summary>'
        f'<div class="numbers" tabindex="0" role="region" aria-label="Cells"><table><thead><tr>'
        f"{heads}</tr></thead><tbody>{rows}</tbody></table></div></details>"
    )


def _number(value: float | None, key: str) -> str:
    if value is None or math.isnan(value):
        return "–"
    return count(value) if key in ("steps", "parameters") else number(value)
