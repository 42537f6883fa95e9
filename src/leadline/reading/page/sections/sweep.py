"""What trains, and how deep: the map of a sweep, its gauges, curves and cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline.reading.page.section import SECTIONS, PagePart, is_sweep

if TYPE_CHECKING:
    from leadline.reading.page.section import PageSubject
    from leadline.reading.show.chart import Chart
    from leadline.record import Record

__all__ = ["SweepSection"]


@SECTIONS.register("sweep")
class SweepSection:
    """The map of every sweep."""

    place = 4

    def reads(self, record: Record) -> bool:
        """Look for a sweep."""
        return is_sweep(record)

    def write(self, subject: PageSubject) -> list[PagePart]:
        """Return the maps, the curves of their rows, and the tables of gauges and cells."""
        from leadline.reading.page.map_content import LEAD, map_content
        from leadline.reading.page.training_curves import draw_row_charts

        content = LEAD
        charts: list[Chart] = []
        for at, record in enumerate(subject.records):
            if is_sweep(record):
                training_map = subject.training_map(at)
                drawn = draw_row_charts(record, training_map, at=at)
                name = subject.names[at] if len(subject.names) > 1 else ""
                content += map_content(record, training_map, drawn, name=name, at=at)
                charts += drawn
        content = f'<div class="map">{content}</div>'
        return [PagePart("map", "What trains", content, tuple(charts), folded=False)]
