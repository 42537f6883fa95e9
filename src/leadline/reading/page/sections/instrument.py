"""What an instrument found that has no depth, such as bounds under attack: as it is printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline.reading.page.section import SECTIONS, PagePart
from leadline.reading.show.markup import safe

if TYPE_CHECKING:
    from leadline.reading.page.section import PageSubject
    from leadline.record import Record

__all__ = ["InstrumentSection"]


@SECTIONS.register("instrument")
class InstrumentSection:
    """The rows below the answer of a record that has nothing to draw over depth."""

    place = 5

    def reads(self, record: Record) -> bool:
        """Look for the result of an instrument without sites in a model."""
        return bool(record.instrument) and not record.stacks

    def write(self, subject: PageSubject) -> list[PagePart]:
        """Return the text of every such record, without the answer, which is the headline."""
        return [
            PagePart(
                f"found-{at}",
                "What was found" if len(subject.records) == 1 else name,
                '<div class="card scroll"><pre class="small">'
                f"{safe(str(record).partition(chr(10))[2].strip())}</pre></div>",
                folded=False,
            )
            for at, (record, name) in enumerate(
                zip(subject.records, subject.names, strict=True), start=1
            )
            if self.reads(record)
        ]
