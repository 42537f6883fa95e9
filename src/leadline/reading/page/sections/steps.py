"""Layers by steps: a map of every quantity that was read of all layers at several steps of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline.reading.page.section import SECTIONS, PagePart, holds_run, is_sweep
from leadline.reading.show.markup import dot, safe
from leadline.reading.show.palette import record_colour
from leadline.record.run.scanned import is_scan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.reading.page.section import PageSubject
    from leadline.reading.watch.heat import LayerSeries
    from leadline.reading.watch.picture import HeatFigure
    from leadline.record import Record

__all__ = ["StepsSection"]

OPEN = 2
"""So many maps are in the open, the most telling ones; all others are folded by topic."""


@SECTIONS.register("steps")
class StepsSection:
    """Maps of layers by steps, the most telling in the open, with warnings on their axis."""

    place = 7

    def reads(self, record: Record) -> bool:
        """Look for one run of which layers were read."""
        if is_scan(record):
            return True
        return holds_run(record) and not is_sweep(record) and bool(record.stacks)

    def write(self, subject: PageSubject) -> list[PagePart]:
        """Return the maps of all records in one part; none where layers were read at one step."""
        pieces: list[str] = []
        for at, record in enumerate(subject.records):
            if not self.reads(record):
                continue
            if is_scan(record):
                pieces += _of_scan(record, at)
                continue
            figures, symbol = _figures(record, at, subject)
            if not figures:
                continue
            several = len(subject.records) > 1
            name = f"<h3>{dot(record_colour(at))}{safe(subject.names[at])}</h3>" if several else ""
            pieces.append(f"{name}{symbol}{_content(figures)}")
        if not pieces:
            return []
        lead = (
            '<p class="lead soft">Rows are layers, the first one on top; columns are steps of the '
            "run. The darker a cell (on a dark page the brighter), the larger the value.</p>"
        )
        return [PagePart("steps", "Layers by steps", lead + "".join(pieces), folded=False)]


def _figures(record: Record, at: int, subject: PageSubject) -> tuple[list[HeatFigure], str]:
    """The figures of one record, the most telling first, and the symbol of its loss."""
    from leadline.reading.watch.gauge_rows import most_telling
    from leadline.reading.watch.heat import layer_series, loss_of
    from leadline.reading.watch.history import History
    from leadline.reading.watch.picture import HeatFigure, loss_symbol

    history = History.of(record)
    findings = tuple(subject.findings(at))
    groups = most_telling(layer_series(history), findings)
    if not groups:
        return [], ""
    loss = loss_of(history)
    span = _span(groups, 0 if loss is None else loss.last_step)
    key = "" if loss is None else f"loss-{at}"
    anchors = tuple(f"finding-{at}-{number}" for number in range(len(findings)))
    figures = [
        HeatFigure(group, f"heat-{at}-{number}", span, key, findings, anchors)
        for number, group in enumerate(groups)
    ]
    return figures, "" if loss is None else loss_symbol(loss, span, key)


def _of_scan(record: Record, at: int) -> list[str]:
    """The maps of every training run among the checkpoints of a scan."""
    from leadline.reading.scan.words import maps_of
    from leadline.reading.watch.picture import HeatFigure, loss_symbol

    pieces: list[str] = []
    for number, series in enumerate(record.scan.series):
        key = f"{at}-{number}"
        figures = [
            HeatFigure(group, f"heat-{key}-{place}", series.span, f"loss-{key}")
            for place, group in enumerate(maps_of(series))
        ]
        if figures:
            symbol = loss_symbol(series.loss, series.span, f"loss-{key}")
            pieces.append(f"<h3>{safe(series.name)}</h3>{symbol}{_content(figures)}")
    return pieces


def _span(groups: Sequence[LayerSeries], last: int) -> tuple[int, int]:
    first = min(group.first for group in groups)
    return first, max(last, *(group.last for group in groups))


def _content(figures: Sequence[HeatFigure]) -> str:
    warned = [figure for figure in figures if figure.is_warned]
    count = max(OPEN, min(len(warned), 2 * OPEN))
    shown, rest = figures[:count], figures[count:]
    topics: dict[str, list[HeatFigure]] = {}
    for figure in rest:
        topics.setdefault(figure.group.quantity.topic, []).append(figure)
    folded = "".join(
        f'<details class="byTopic"><summary>{safe(topic.replace("_", " ").capitalize())} '
        f'<span class="small">{safe("; ".join(one.group.title for one in several))}</span>'
        f"</summary>{_grid(several)}</details>"
        for topic, several in topics.items()
    )
    return f"{_grid(shown)}{folded}"


def _grid(figures: Sequence[HeatFigure]) -> str:
    return f'<div class="heats">{"".join(figure.to_html() for figure in figures)}</div>'
