"""Curves over training steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline.reading.page.section import SECTIONS, PagePart, holds_run, is_sweep
from leadline.reading.show.card import chart_card

if TYPE_CHECKING:
    from leadline.reading.page.section import PageSubject
    from leadline.record import Record

__all__ = ["TrainingSection"]


@SECTIONS.register("training")
class TrainingSection:
    """The losses of a training run, then all else that it wrote step by step."""

    place = 5

    def reads(self, record: Record) -> bool:
        """Look for numbers of a single run; those of a sweep stand with its map."""
        return holds_run(record) and not is_sweep(record)

    def write(self, subject: PageSubject) -> list[PagePart]:
        """Return the curves of all records, laid over each other."""
        from leadline.reading.page.training_curves import draw_training_charts

        charts = draw_training_charts(subject.records, subject.names)
        if not charts:
            return []
        cards = "".join(map(chart_card, charts))
        content = f'<div class="charts">{cards}</div>'
        return [PagePart("training", "Over training", content, tuple(charts), folded=False)]
