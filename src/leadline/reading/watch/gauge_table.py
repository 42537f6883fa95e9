"""The gauges of a run as a table, and a run as strict JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from leadline.reading.diagnosis.words import finding_json
from leadline.reading.watch.state_words import answer_sentence
from leadline.record.provenance import strict_json, strict_number
from leadline.record.run.trend import trend_of
from leadline.record.words.numbers import format_number
from leadline.record.words.table import Row, TableCell, TableColumn, TextTable
from leadline.record.words.text import shape_cell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.reading.watch.gauge_rows import GaugeRow
    from leadline.reading.watch.screen import WatchView

__all__ = ["SCHEMA", "gauge_table", "watch_json"]

SCHEMA = 1
"""The form of the JSON, described in docs/json.md."""


def gauge_table(rows: Sequence[GaugeRow]) -> TextTable:
    """Return a row per gauge: now, its past, and the layer that has moved farthest from its own.

    Between the 10th and the 90th percentile lie eight of ten samples, so one of five gauges stands
    outside without anything being wrong.
    """
    columns = (
        TableColumn("gauge", style="bold"),
        TableColumn("now", right=True),
        TableColumn("past", right=True),
        TableColumn("10 to 90 %", right=True, gives_way=(3,)),
        TableColumn("by step", style="cyan", gives_way=(1, 2, 4)),
        TableColumn("moved most", gives_way=(5,)),
    )
    return TextTable(columns, tuple(Row(_gauge_cells(row)) for row in rows))


def _gauge_cells(row: GaugeRow) -> tuple[str | TableCell, ...]:
    style = "bold yellow" if row.warned else ""
    usual = "" if math.isnan(row.low) else f"{_short(row.low)} to {_short(row.high)}"
    return (
        TableCell((row.label,), style=style),
        _short(row.now),
        "" if math.isnan(row.past) else _short(row.past),
        usual,
        shape_cell(row.curve, row.quantity.scale, along="steps"),
        TableCell((_worst_text(row),), style=style),
    )


def _worst_text(row: GaugeRow) -> str:
    worst = row.worst
    if worst is None:
        return ""
    text = f"{worst.label}: {_short(worst.value)}"
    if math.isnan(worst.past):
        return text
    if row.quantity.scale == "log" and worst.past > 0 and math.isfinite(worst.value):
        return f"{text}, ×{format_number(worst.value / worst.past, digits=2)}"
    return f"{text}, was {_short(worst.past)}"


def _short(value: float) -> str:
    return format_number(value, digits=3)


def watch_json(view: WatchView) -> dict[str, Any]:
    """Return what is shown as strict JSON, with every gauge and the last value of every layer."""
    sight = view.sight
    step = sight.history.step
    return {
        "schema": SCHEMA,
        "file": sight.name,
        "state": sight.state,
        "answer": [answer_sentence(sight)],
        "step": step,
        "quiet_seconds": None if sight.quiet is None else round(sight.quiet, 1),
        "loss": None if view.loss is None else strict_number(view.loss.last),
        "loss_level": _level(view),
        "warnings": [
            {
                **finding_json(finding),
                "quantity": finding.quantity,
                "step": finding.details.get("step"),
                "since": finding.details.get("since"),
                "batches": finding.details.get("batches", {}),
            }
            for finding in sight.findings
        ],
        "earlier_warnings": [
            {**finding_json(finding), "step": finding.details.get("step")}
            for finding in sight.earlier
        ],
        "gauges": [_gauge_json(row) for row in view.gauges],
        "notes": strict_json(sight.provenance.get("watch", {}).get("notes", [])),
    }


def _level(view: WatchView) -> float | str | None:
    """The median of the last updates, which the answer speaks of."""
    trend = None if view.loss is None else trend_of(view.loss.steps, view.loss.values)
    return None if trend is None else strict_number(trend.now)


def _gauge_json(row: GaugeRow) -> dict[str, Any]:
    return {
        "gauge": row.label,
        "now": strict_number(row.now),
        "past": strict_number(row.past),
        "low": strict_number(row.low),
        "high": strict_number(row.high),
        "warned": row.warned,
        "worst_layer": None
        if row.worst is None
        else {
            "layer": row.worst.label,
            "now": strict_number(row.worst.value),
            "past": strict_number(row.worst.past),
        },
        "layers": {}
        if row.group is None
        else {
            label: strict_number(series.last)
            for label, series in zip(row.group.labels, row.group.series, strict=True)
        },
    }
