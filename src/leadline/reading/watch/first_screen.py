"""What the first screen of a record shows of its layers over the steps of a run: the telling map."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline.reading.watch.drawing import HeatDrawing
from leadline.reading.watch.gauge_rows import most_telling
from leadline.reading.watch.heat import layer_series, loss_of
from leadline.reading.watch.history import History
from leadline.record.words.screen import Sentence

if TYPE_CHECKING:
    from leadline.record import Record
    from leadline.record.words.screen import Drawing

__all__ = ["layers_by_steps"]

LINES = 12
"""So many lines of cells the map has: with what is around it, it fits twenty lines."""


def layers_by_steps(record: Record) -> list[Sentence | Drawing]:
    """Return the most telling map of a run with its title; nothing where layers were read once."""
    if not record.stacks:
        return []
    history = History.of(record)
    findings = record.findings
    groups = most_telling(layer_series(history), findings)
    if not groups:
        return []
    group = groups[0]
    more = len(groups) - 1
    others = f"; {more} more: `leadline watch FILE --quantity NAME` or the report" if more else ""
    title = f"{group.title} by layer and step ({group.address}{others})"
    short = f"{group.title} by layer and step ({group.address})"
    drawing = HeatDrawing(group, LINES, loss_of(history), findings=tuple(findings))
    return [Sentence(title, "bold", in_python=short, hang=2), drawing]
