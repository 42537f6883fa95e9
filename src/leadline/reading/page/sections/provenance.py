"""Where the numbers came from: a table per topic, one column per record."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from leadline.reading.page.section import SECTIONS, PagePart
from leadline.reading.show.markup import dot, safe
from leadline.reading.show.palette import record_colour
from leadline.reading.show.wording import number
from leadline.record.run.ending import is_cell
from leadline.record.run.scanned import is_of_checkpoint

if TYPE_CHECKING:
    from leadline.reading.page.section import PageSubject
    from leadline.record import Record

__all__ = ["ProvenanceSection", "in_words"]

# Parts of the provenance that have a place of their own on the page.
_ELSEWHERE = (("anatomy", "layers"), ("anatomy", "unusual"), ("sweep", "description"))
_FIRST = ("model", "anatomy", "input", "loss", "passes", "coverage", "run", "versions")


@SECTIONS.register("provenance")
class ProvenanceSection:
    """Where the numbers came from."""

    place = 90

    def reads(self, record: Record) -> bool:
        """Every record came from somewhere."""
        return True

    def write(self, subject: PageSubject) -> list[PagePart]:
        """Return the tables."""
        records, names = subject.records, subject.names
        columns = [_flat(record.provenance) for record in records]
        keys = list(dict.fromkeys(key for column in columns for key in column))
        heads = list(dict.fromkeys(key[0] for key in keys))
        heads.sort(key=lambda one: _FIRST.index(one) if one in _FIRST else len(_FIRST))
        top = ""
        if len(records) > 1:
            cells = "".join(
                f'<th scope="col">{dot(record_colour(at))}{safe(name)}</th>'
                for at, name in enumerate(names)
            )
            top = f"<thead><tr><td></td>{cells}</tr></thead>"
        tables: list[str] = []
        for head in heads:
            title = (head[:1].upper() + head[1:]).replace("_", " ")
            rows = "".join(
                f'<tr><th scope="row">{safe(key[1])}</th>'
                + "".join(f"<td>{safe(column.get(key, '–'))}</td>" for column in columns)
                + "</tr>"
                for key in keys
                if key[0] == head
            )
            tables.append(
                f'<div class="card scroll"><table><caption>{safe(title)}</caption>{top}'
                f"<tbody>{rows}</tbody></table></div>"
            )
        kind = "provenance" if len(records) < 3 else "provenance wide"
        content = f'<div class="{kind}">{"".join(tables)}</div>'
        return [PagePart("provenance", "Provenance", content, folded=False)]


def _flat(known: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """Flatten the provenance into (topic, entry) and text.

    Blocks, attention, what a visit found out and the cells of a sweep are shown elsewhere. Single values share the topic
    `run`.
    """
    entries: dict[tuple[str, str], str] = {}
    for head, value in known.items():
        if head in ("attention", "visit") or is_cell(head) or is_of_checkpoint(head):
            continue
        if not isinstance(value, Mapping):
            entries["run", head] = in_words(value)
            continue
        for key, item in cast("Mapping[str, object]", value).items():
            if (head, key) not in _ELSEWHERE:
                entries[head, key.replace("_", " ")] = in_words(item)
    return entries


def in_words(value: object, *, nothing: str = "none") -> str:
    """Write a JSON value for people; an empty list is `nothing`."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else number(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        inside = cast("Mapping[str, object]", value)
        if set(inside) == {"what", "why"}:
            return f"{inside['what']} ({inside['why']})"
        items = inside.items()
        return ", ".join(f"{key} {in_words(item)}" for key, item in items) or nothing
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "; ".join(in_words(item) for item in cast("Sequence[object]", value)) or nothing
    return str(value)
