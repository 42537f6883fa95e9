"""Theory beside what was measured: bounds on attention, on rank collapse, laws of depth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline.reading.page.section import SECTIONS, PagePart
from leadline.record.provenance import value_at
from leadline.record.run.scanned import is_scan

if TYPE_CHECKING:
    from leadline.reading.page.section import PageSubject
    from leadline.record import Record

__all__ = ["BoundsSection"]

_TOPICS = {"attention", "collapse", "jacobian"}
_PROBES = {"residual", "collapse"}
"""Topics and probes that theorems are about, beside the design of a model whose recipe is known."""


@SECTIONS.register("bounds")
class BoundsSection:
    """What theorems predict, wherever their assumptions hold: a folded part per family."""

    place = 60

    def reads(self, record: Record) -> bool:
        """Look for what theorems are about: a recipe, or readings that they compare with."""
        if is_scan(record):
            return False
        known = record.provenance
        measured = record.quantities.values()
        return (
            any(one.topic in _TOPICS or one.ingredient_of for one in measured)
            or not _PROBES.isdisjoint(known.get("probes") or ())
            or value_at(known, "model", "recipe") is not None
        )

    def write(self, subject: PageSubject) -> list[PagePart]:
        """Compute the bounds of every record, and return a part per family that has any."""
        from leadline.reading.bounds.section import bounds_topics

        return [
            PagePart(key, title, content, charts, remark=remark)
            for key, title, content, charts, remark in bounds_topics(subject.records, subject.names)
        ]
