"""Sections of the report: each is a class in `sections/`, entered in the catalog `SECTIONS`.

    @SECTIONS.register("training")
    class TrainingSection:
        place = 30

        def reads(self, record): ...     # cheap: looks at provenance and quantities only
        def write(self, subject): ...    # a list of parts, of whatever records it reads

`place` is where its parts stand: 0 the answer, 5 the findings, 10 the stream and its gradients, 20 to 30 training,
40 to 80 what is folded by topic, 90 the provenance. A section whose `reads` says no of every
record is not written, and whatever it needs for that is imported inside `write`. A plug-in adds a
section by the same decorator, or through an entry point of the group `leadline.sections`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from leadline.catalog import Catalog
from leadline.reading.page.figures import draw_charts
from leadline.reading.show.markup import safe
from leadline.record.run.scanned import is_scan

if TYPE_CHECKING:
    from leadline.reading.diagnosis.diagnosis import Diagnosis
    from leadline.reading.map.trainability import Trainability
    from leadline.reading.show.chart import Chart
    from leadline.record import Finding, Record

__all__ = [
    "SECTIONS",
    "PagePart",
    "PageSubject",
    "Section",
    "has_depth",
    "holds_run",
    "is_sweep",
    "write_parts",
]


@dataclass(frozen=True)
class PageSubject:
    """What a report is about: records with their names, and the maps of those that are sweeps.

    `names` are short where several records have long ones; then `full_names` are those in full.
    """

    records: Sequence[Record]
    names: Sequence[str]
    title: str
    full_names: Sequence[str] = ()
    training_maps: dict[int, Trainability] = field(default_factory=dict["int", "Trainability"])
    diagnoses: dict[int, Diagnosis] = field(default_factory=dict["int", "Diagnosis"])

    @cached_property
    def charts(self) -> list[Chart]:
        """The charts over depth."""
        return draw_charts(self.records, names=self.names)

    def diagnosis(self, at: int) -> Diagnosis:
        """Return what the rules say of record number `at`: what was handed over, or asked now."""
        if at not in self.diagnoses:
            from leadline.reading.diagnosis.standing import standing_diagnosis

            self.diagnoses[at] = standing_diagnosis(self.records[at])
        return self.diagnoses[at]

    def findings(self, at: int) -> list[Finding]:
        """Return what rules and passes found in record number `at`, the worst first."""
        from leadline.reading.diagnosis.standing import without_repetition

        return without_repetition(self.diagnosis(at), self.records[at].findings)

    def training_map(self, at: int) -> Trainability:
        """Return the map of the sweep that is record number `at`, computed once."""
        if at not in self.training_maps:
            from leadline.reading.map.trainability import trainability

            self.training_maps[at] = trainability(self.records[at])
        return self.training_maps[at]


@dataclass(frozen=True)
class PagePart:
    """One part of the page: an identifier, a title, and content that is HTML.

    `charts` are those whose cards stand in the content, in their order. A folded part is closed
    until the reader opens it or follows a link to it; `remark` says beside its title what is
    inside. A part without a title is neither headed nor linked.
    """

    key: str
    title: str
    content: str
    charts: tuple[Chart, ...] = ()
    folded: bool = True
    remark: str = ""

    def to_html(self) -> str:
        """Return the part with its heading."""
        if self.folded:
            return (
                f'<details class="part" id="{self.key}"><summary><h2>{safe(self.title)}</h2>'
                f'<span class="soft small">{safe(self.remark)}</span></summary>'
                f"{self.content}</details>"
            )
        if not self.title:
            return f'<section id="{self.key}" aria-labelledby="headline">{self.content}</section>'
        return (
            f'<section id="{self.key}" aria-labelledby="{self.key}-title">'
            f'<h2 id="{self.key}-title">{safe(self.title)}</h2>{self.content}</section>'
        )


class Section(Protocol):
    """What the page asks of a section."""

    place: float

    def reads(self, record: Record) -> bool:
        """Say whether the record has anything for this section; must be cheap."""
        ...

    def write(self, subject: PageSubject) -> list[PagePart]:
        """Return the parts of the page; none where there is nothing to show after all."""
        ...


SECTIONS: Catalog[type[Section]] = Catalog(
    "section", package="leadline.reading.page.sections", group="leadline.sections"
)


def write_parts(subject: PageSubject) -> list[PagePart]:
    """Write every section that reads one of the records, in the order of their places."""
    sections = [section() for _, section in SECTIONS.items()]
    sections = [one for one in sections if any(map(one.reads, subject.records))]
    sections.sort(key=lambda section: section.place)
    return [part for section in sections for part in section.write(subject)]


def is_sweep(record: Record) -> bool:
    """Say whether a record is that of a sweep."""
    return "sweep" in record.provenance


def has_depth(record: Record) -> bool:
    """Say whether lines over depth can be drawn: a scan holds those of many models."""
    return bool(record.stacks) and not is_scan(record)


def holds_run(record: Record) -> bool:
    """Say whether a record is of training: it is a sweep, or has numbers of a run."""
    if record.instrument:  # bounds under attack are runs too, without steps
        return False
    runs = any(quantity.over == "step" for quantity in record.quantities.values())
    return runs or is_sweep(record)
