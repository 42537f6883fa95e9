"""What an instrument found, as it is printed: in the open where there is nothing to draw over depth."""

from __future__ import annotations

from itertools import dropwhile
from typing import TYPE_CHECKING

from leadline.reading.page.section import SECTIONS, PagePart
from leadline.reading.show.markup import safe
from leadline.record.run.scanned import is_scan
from leadline.record.words.screen import Screen, Sentence

if TYPE_CHECKING:
    from leadline.reading.page.section import PageSubject
    from leadline.record import Record

__all__ = ["InstrumentSection"]


@SECTIONS.register("instrument")
class InstrumentSection:
    """What is printed below the answer; folded where charts over depth show it too."""

    place = 5

    def reads(self, record: Record) -> bool:
        """Look for the result of an instrument."""
        return bool(record.instrument) and not is_scan(record)  # a scan has a section of its own

    def write(self, subject: PageSubject) -> list[PagePart]:
        """Return the text of every such record, without the answer, which is the headline."""
        several = len(subject.records) > 1
        return [
            PagePart(
                f"found-{at}",
                name if several else "What was found",
                f'<div class="card scroll"><pre class="small">{safe(text)}</pre></div>',
                folded=bool(record.stacks),
                remark="as it is printed",
            )
            for at, (record, name) in enumerate(
                zip(subject.records, subject.names, strict=True), start=1
            )
            if self.reads(record) and (text := _below_the_answer(record))
        ]


def _below_the_answer(record: Record) -> str:
    """What is printed of a record, from the first empty line or table on."""
    parts = dropwhile(
        lambda part: isinstance(part, Sentence) and bool(part.text), record.screen().parts
    )
    return Screen(tuple(parts)).text()
