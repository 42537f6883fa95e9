"""A scan on a page: what changes over its checkpoints, and a row for each of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from leadline.reading.page.section import SECTIONS, PagePart
from leadline.reading.show.markup import safe
from leadline.reading.show.wording import number
from leadline.record.run.scanned import is_scan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.reading.page.section import PageSubject
    from leadline.reading.scan.changes import LayerChange
    from leadline.reading.scan.checkpoints import ScannedCheckpoint
    from leadline.reading.scan.scan import Scan
    from leadline.reading.scan.series import CheckpointSeries
    from leadline.record import Record

__all__ = ["ScanSection"]

OPEN = 12
"""So many changes of a run are in the open."""
_CHANGE_TITLES = ("What changes", "Layers", "Since step", "From → to", "By", "Other layers")


@SECTIONS.register("scan")
class ScanSection:
    """Changes over the checkpoints of every run, and the table of all checkpoints."""

    place = 5

    def reads(self, record: Record) -> bool:
        """Look for a scan."""
        return is_scan(record)

    def write(self, subject: PageSubject) -> list[PagePart]:
        """Return both tables of every scan."""
        parts: list[PagePart] = []
        for at, record in enumerate(subject.records):
            if not is_scan(record):
                continue
            scan = record.scan
            name = f": {subject.names[at]}" if len(subject.records) > 1 else ""
            if scan.series:
                content = "".join(_changes(series, found) for series, found in scan.changes)
                title = f"What changes over the checkpoints{name}"
                parts.append(PagePart(f"changes-{at}", title, content, folded=False))
            parts.append(
                PagePart(f"checkpoints-{at}", f"Checkpoints{name}", _table(scan), folded=False)
            )
        return parts


def _changes(series: CheckpointSeries, changes: Sequence[LayerChange]) -> str:
    first, last = series.span
    heading = f"<h3>{safe(series.name)}, steps {first:,} to {last:,}</h3>"
    if not changes:
        return (
            f'{heading}<p class="soft">No layer changes by more than the noise between its '
            f"{len(series.checkpoints)} checkpoints.</p>"
        )
    rest = changes[OPEN:]
    more = (
        f'<details class="byTopic"><summary>{len(rest)} more</summary>{_change_table(rest)}</details>'
        if rest
        else ""
    )
    return f"{heading}{_change_table(changes[:OPEN])}{more}"


def _change_table(changes: Sequence[LayerChange]) -> str:
    from leadline.reading.scan.words import change_cells

    rows = "".join(_cells(change_cells(change), numbers=(2, 3, 4, 5)) for change in changes)
    return (
        f'<div class="card scroll"><table>{_head(_CHANGE_TITLES, numbers=(2, 3, 4, 5))}'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _table(scan: Scan) -> str:
    has_steps = any(one.step is not None for one in scan.checkpoints)
    titles = ["Checkpoint", "Verdict", "Loss", "Stream", "Gradient", "Layers", "Time"]
    if has_steps:
        titles.insert(2, "Step")
    numbers = tuple(at for at, title in enumerate(titles) if title not in ("Checkpoint", "Verdict"))
    rows = "".join(_row(one, has_steps=has_steps) for one in scan.checkpoints)
    note = (
        '<p class="soft small">Stream: its size behind the last block over that behind the first. '
        "Gradient: its size at the first block over that at the last. Layers: those that the first "
        f"finding names. Loss: on {safe(scan.inputs)}.</p>"
    )
    return (
        f'<div class="card scroll checkpoints"><table>{_head(titles, numbers=numbers)}'
        f"<tbody>{rows}</tbody></table></div>{note}"
    )


def _row(one: ScannedCheckpoint, *, has_steps: bool) -> str:
    from leadline.reading.scan.words import factor_text, layers_of, verdict_of

    verdict, severity = verdict_of(one)
    why = one.reason if not one.measured else one.first["verdict"] if one.first else ""
    told = f'<br><span class="soft small">{safe(why)}</span>' if why else ""
    step = "" if one.step is None else f"{one.step:,}"
    return (
        f'<tr class="{severity or "healthy"}"><th scope="row">{safe(one.name)}</th>'
        f'<td class="verdict"><b>{safe(verdict)}</b>{told}</td>'
        + (f'<td class="number">{step}</td>' if has_steps else "")
        + "".join(
            f'<td class="number">{safe(text)}</td>'
            for text in (
                "" if math.isnan(one.loss) else number(one.loss),
                "" if math.isnan(one.growth) else factor_text(one.growth),
                "" if math.isnan(one.gradient) else factor_text(one.gradient),
                layers_of(one),
                f"{one.seconds:.1f} s",
            )
        )
        + "</tr>"
    )


def _head(titles: Sequence[str], *, numbers: Sequence[int]) -> str:
    cells = "".join(
        f'<th scope="col"{_class(at, numbers)}>{safe(title)}</th>'
        for at, title in enumerate(titles)
    )
    return f"<thead><tr>{cells}</tr></thead>"


def _cells(texts: Sequence[str], *, numbers: Sequence[int]) -> str:
    first, *others = texts
    cells = "".join(
        f"<td{_class(at, numbers)}>{safe(text)}</td>" for at, text in enumerate(others, start=1)
    )
    return f'<tr><th scope="row">{safe(first)}</th>{cells}</tr>'


def _class(at: int, numbers: Sequence[int]) -> str:
    return ' class="number"' if at in numbers else ""
