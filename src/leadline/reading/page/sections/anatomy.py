"""The anatomy of every model as a drawing, with how well its books balance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from leadline.reading.page.drawing import anatomy_drawing
from leadline.reading.page.headline import balance_sentence
from leadline.reading.page.section import SECTIONS, PagePart
from leadline.reading.page.sections.provenance import in_words
from leadline.reading.show.blocks import read_blocks
from leadline.reading.show.markup import definitions, dot, safe
from leadline.reading.show.palette import css_colour, point_colour, record_colour
from leadline.record.provenance import number_at, text_at, value_at

if TYPE_CHECKING:
    from leadline.reading.page.section import PageSubject
    from leadline.record import Record

__all__ = ["AnatomySection"]

_ROLES = ("attention", "mlp", "cross-attention", "mixer", "branch")
_READING = (
    '<p class="lead soft">The stream runs downwards. Each sublayer reads it, and its update is '
    "added at the plus sign. The books balance when the stream before, times what is kept of it, "
    "plus the update equals the stream after; the difference is counted in eps, the rounding of "
    "the stream.</p>"
)


@SECTIONS.register("anatomy")
class AnatomySection:
    """The drawing of every stack, with the balance."""

    place = 30

    def reads(self, record: Record) -> bool:
        """Look for an anatomy."""
        return "anatomy" in record.provenance

    def write(self, subject: PageSubject) -> list[PagePart]:
        """Return a drawing per record, side by side."""
        several = len(subject.records) > 1
        cards = "".join(
            _anatomy_of(record, name if several else "", index)
            for index, (record, name) in enumerate(zip(subject.records, subject.names, strict=True))
        )
        kind = "records" if several else "record"
        content = f'<div class="anatomy">{_READING if several else ""}<div class="{kind}">{cards}</div></div>'
        remark = "the blocks as they were found, and how well their books balance"
        return [PagePart("anatomy", "Anatomy", content, remark=remark)]


def _anatomy_of(record: Record, name: str, index: int) -> str:
    known = record.provenance
    blocks = read_blocks(cast("Mapping[str, Any]", value_at(known, "anatomy") or {}))
    colours = {role: css_colour(point_colour(role)) for role in _ROLES}
    title = f"<h3>{dot(record_colour(index))}{safe(name)}</h3>" if name else ""
    entries = [
        ("Found by", text_at(known, "anatomy", "source")),
        ("Judged on", _judged(known)),
        ("Rounding of", text_at(known, "anatomy", "balance_dtype")),
        ("Write", "; ".join(dict.fromkeys(w.law for b in blocks for w in b.writes if w.law))),
        ("Remarks", in_words(value_at(known, "anatomy", "remarks") or [], nothing="")),
    ]
    figures: list[str] = []
    for stack in dict.fromkeys(block.stack for block in blocks):
        members = [block for block in blocks if block.stack == stack]
        lanes = int(number_at(known, "anatomy", "stacks", stack, "lanes") or 1)
        width = number_at(known, "anatomy", "stacks", stack, "width")
        size = f", width {width:.0f}" if width is not None else ""
        layers = f"{len(members)} layer{'' if len(members) == 1 else 's'}"
        figures.append(
            f"<figure><figcaption><strong>{safe(stack)}</strong>"
            f'<span class="soft small"> {layers}{size}</span></figcaption>'
            f"{anatomy_drawing(members, lanes=lanes, colours=colours)}</figure>"
        )
    unusual = cast("Sequence[str]", value_at(known, "anatomy", "unusual") or [])
    note = "" if blocks else "<p>This record does not hold the blocks of the model.</p>"
    return (
        f'<div class="card"><div>{title}<p class="balance">{safe(balance_sentence(known))}</p>'
        f"{''.join(f'<p>Unusual: {safe(sentence)}</p>' for sentence in unusual)}"
        f"{definitions(entries, kind='plain small')}{note}"
        f"{'' if name else _READING}</div>{''.join(figures)}</div>"
    )


def _judged(known: Mapping[str, Any]) -> str:
    judged = number_at(known, "anatomy", "balance_judged")
    unjudged = cast("Sequence[object]", value_at(known, "anatomy", "balance_unjudged") or [])
    if judged is None:
        return ""
    layers = f"{judged:.0f} layer{'' if judged == 1 else 's'}"
    return f"{layers}; {len(unjudged)} not finite" if unjudged else layers
