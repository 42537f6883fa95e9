"""The screen of a run: how it is doing, warnings, the loss, the map of layers by steps, gauges.

    watch_screen(sight)                       # everything, for a pipe
    watch_screen(sight, height=24)            # what fits a terminal

The first line is the answer. What finds no room in a small terminal goes from the end: gauges first,
then rows of the map; the answer and the worst warnings stay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leadline.errors import UnknownName
from leadline.reading.diagnosis.words import finding_json
from leadline.reading.watch.drawing import HeatDrawing
from leadline.reading.watch.gauge_rows import gauge_of, gauge_rows, most_telling, warned
from leadline.reading.watch.heat import chosen_series, layer_series, loss_of
from leadline.reading.watch.state_words import answer_sentence, detail_sentence, state_sentence
from leadline.record.provenance import strict_json, strict_number
from leadline.record.words.numbers import format_number
from leadline.record.words.screen import Screen, Sentence
from leadline.record.words.table import Row, TableCell, TableColumn, TextTable
from leadline.record.words.text import SEVERITY, shape_cell
from leadline.record.words.watch_answer import warning_place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.reading.watch.gauge_rows import GaugeRow
    from leadline.reading.watch.heat import LayerSeries
    from leadline.reading.watch.history import Series
    from leadline.reading.watch.sight import RunSight
    from leadline.record import Finding
    from leadline.record.words.screen import Drawing

__all__ = ["WatchView", "watch_json", "watch_view"]

FAR_MORE = 2.0
"""Another map takes the place of the one that is shown where it departs so many times as far."""
MOST_WARNINGS = 3
"""So many warnings are shown in full."""
MOST_LINES = 16
"""So many lines of cells a map has at most, where there is no terminal to fit."""
LEAST_LINES = 3
"""A map of fewer lines is left out."""
MOST_GAUGES = 12
"""So many gauges are shown where there is no terminal to fit."""
LEAST_GAUGES = 3
"""A table of fewer gauges is left out, unless there are no more."""
_AROUND_MAP = 5
"""Lines of a map beside its cells: title, loss, marks, steps, legend."""
_AROUND_GAUGES = 2
"""Lines of the gauges beside their rows: an empty one, and their titles."""
TALL = 34
"""From so many lines on the loss has three of them."""


@dataclass(frozen=True, eq=False)
class WatchView:
    """What is shown of a sight: the group on its map, the gauges, and the loss."""

    sight: RunSight
    group: LayerSeries | None
    gauges: tuple[GaugeRow, ...]
    loss: Series | None
    relative: bool = False

    def screen(self, *, width: int | None = None, height: int | None = None) -> Screen:
        """Return the screen: everything, or what fits into `height` lines of `width` columns."""
        head = self._head()
        tail = [Sentence(state_sentence(self.sight), "dim", hang=2)]
        if height is None or height >= TALL:
            tail.append(Sentence(detail_sentence(self.sight), "dim", hang=2))
        tail = [one for one in tail if one.text]
        if height is None:
            lines, gauges, curve = MOST_LINES, MOST_GAUGES, 3
        else:
            curve = 3 if height >= TALL else 1
            used = sum(_height(one, width) for one in (*head, *tail))
            lines, gauges = self._shares(height - used - (curve - 1))
        parts: list[Sentence | TextTable | Drawing] = [*head]
        if self.group is not None and lines:
            title = f"{self.group.title}  {self.group.address}"
            parts += [Sentence(title, "bold"), self._drawing(self.group, lines, curve)]
        elif self.loss is not None and (height is None or height > len(head) + 2):
            parts.append(Sentence(_loss_line(self.loss, width)))
        if gauges and self.gauges:
            parts += [Sentence(), gauge_table(self.gauges[:gauges])]
        return Screen((*parts, *tail))

    def _head(self) -> list[Sentence]:
        sight = self.sight
        worst = sight.findings[0].severity if sight.findings else None
        style = SEVERITY[worst] if worst else "bold"
        return [
            Sentence(answer_sentence(sight), style, hang=2),
            *warning_sentences(sight.findings),
            Sentence(),
        ]

    def _shares(self, room: int) -> tuple[int, int]:
        """Share the lines of a terminal between the map and the gauges."""
        needed = 0 if self.group is None else len(self.group.series)
        wanted = min(needed, max(room - _AROUND_MAP, 0))
        if wanted < min(needed, LEAST_LINES):
            return 0, min(len(self.gauges), max(room - _AROUND_GAUGES, 0))
        lines = min(wanted, max(LEAST_LINES, (2 * room) // 3 - _AROUND_MAP))
        around = lines + _AROUND_MAP if lines else 0
        gauges = min(len(self.gauges), max(room - around - _AROUND_GAUGES, 0))
        if gauges < min(LEAST_GAUGES, len(self.gauges)):
            return wanted, 0
        spare = room - around - _AROUND_GAUGES - gauges
        return lines + min(spare, needed - lines), gauges

    def _drawing(self, group: LayerSeries, lines: int, curve: int) -> HeatDrawing:
        findings = tuple(self.sight.findings)
        return HeatDrawing(group, lines, self.loss, curve, findings, relative=self.relative)


def watch_view(
    sight: RunSight,
    *,
    quantity: str | None = None,
    before: str | None = None,
    relative: bool = False,
) -> WatchView:
    """Choose what is shown of a sight.

    The map is that of `quantity`, an address such as update.ratio[mlp]. Without one it is what the
    worst warning speaks of; without a warning what has departed most from its past. The map of the
    address `before` stays, so that it does not change under the reader's eyes without need.
    """
    groups = layer_series(sight.history)
    return WatchView(
        sight,
        _chosen_group(groups, sight, quantity, before),
        tuple(gauge_rows(sight.history, groups, sight.findings)),
        loss_of(sight.history),
        relative,
    )


def _chosen_group(
    groups: Sequence[LayerSeries], sight: RunSight, quantity: str | None, before: str | None
) -> LayerSeries | None:
    if quantity is not None:
        named = chosen_series(groups, quantity)
        if not named and groups:
            known = [str(group.address) for group in groups]
            raise UnknownName("quantity over layers and steps of this record", quantity, known)
        groups = named
    ordered = most_telling(groups, sight.findings)
    if not ordered:
        return None
    same = [group for group in groups if str(group.address) == before]
    if same and not _outweighs(ordered[0], same[0], sight.findings):
        return same[0]
    return ordered[0]


def _outweighs(best: LayerSeries, shown: LayerSeries, findings: Sequence[Finding]) -> bool:
    """Whether the map changes under the reader's eyes: for a warning, or for what departs far more."""
    if warned(best, findings) is not None:
        return True
    return gauge_of(best).telling > FAR_MORE * max(gauge_of(shown).telling, 1.0)


def warning_sentences(findings: Sequence[Finding]) -> list[Sentence]:
    """Return the worst warnings: what, where and since when, and below each what to do."""
    lines: list[Sentence] = []
    for finding in findings[:MOST_WARNINGS]:
        words = [finding.severity, finding.code, finding.verdict]
        text = ": ".join(word for word in words if word)
        place = warning_place(finding, unless_in=finding.verdict)
        text = f"{text} ({place})" if place else text
        lines.append(Sentence(text, SEVERITY[finding.severity], hang=2))
        if remedy := finding.remedy.get("words"):
            lines.append(Sentence(f"  do: {remedy}", hang=6))
    hidden = len(findings) - len(findings[:MOST_WARNINGS])
    if hidden:
        lines.append(Sentence(f"{hidden} more: `leadline report FILE --all`", "dim"))
    return lines


def gauge_table(rows: Sequence[GaugeRow]) -> TextTable:
    """Return a row per gauge: now, its past, and the layer that departs most from its own."""
    columns = (
        TableColumn("gauge", style="bold"),
        TableColumn("now", right=True),
        TableColumn("past", right=True),
        TableColumn("usual range", right=True, gives_way=(3,)),
        TableColumn("by step", style="cyan", gives_way=(1, 2, 4)),
        TableColumn("worst layer", gives_way=(5,)),
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


def _loss_line(loss: Series, width: int | None) -> str:
    from leadline.record.words.numbers import sparkline

    line = sparkline(loss.values, scale="log", width=(width or 80) - 16)
    return f"loss {line} {_short(loss.last)}"


def _height(sentence: Sentence, width: int | None) -> int:
    """How many lines of a terminal a sentence takes."""
    import textwrap

    if width is None or not sentence.text:
        return 1
    indent = " " * min(sentence.hang, width // 2)
    return len(textwrap.wrap(sentence.text, width, break_on_hyphens=False,
                             subsequent_indent=indent)) or 1  # fmt: skip


def watch_json(view: WatchView) -> dict[str, Any]:
    """Return what is shown as strict JSON, with every gauge and the last value of every layer."""
    sight = view.sight
    step = sight.history.step
    return {
        "file": sight.name,
        "state": sight.state,
        "answer": answer_sentence(sight),
        "step": step,
        "quiet_seconds": None if sight.quiet is None else round(sight.quiet, 1),
        "loss": None if view.loss is None else strict_number(view.loss.last),
        "warnings": [
            {
                **finding_json(finding),
                "quantity": finding.quantity,
                "step": finding.details.get("step"),
                "since": finding.details.get("since"),
            }
            for finding in sight.findings
        ],
        "gauges": [_gauge_json(row) for row in view.gauges],
        "notes": strict_json(sight.provenance.get("watch", {}).get("notes", [])),
    }


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
