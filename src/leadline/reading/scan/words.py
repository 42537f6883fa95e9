"""A scan in words: which checkpoints are unhealthy and why, what changes, a row for each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from leadline.errors import join_words
from leadline.reading.watch.drawing import HeatDrawing
from leadline.reading.watch.gauge_rows import most_telling
from leadline.reading.watch.heat import layer_series
from leadline.record.words.numbers import format_number
from leadline.record.words.screen import MOST_ROWS, Drawing, Screen, Sentence
from leadline.record.words.table import Row, TableCell, TableColumn, TextTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.reading.scan.changes import LayerChange
    from leadline.reading.scan.checkpoints import ScannedCheckpoint
    from leadline.reading.scan.scan import Scan
    from leadline.reading.scan.series import CheckpointSeries
    from leadline.reading.watch.heat import LayerSeries
    from leadline.record.rows.finding import Severity

__all__ = [
    "MOST_CHANGES",
    "CheckpointFault",
    "answer_of",
    "change_cells",
    "factor_text",
    "facts_of",
    "faults_of",
    "layers_of",
    "maps_of",
    "places_of",
    "screen_of",
    "verdict_of",
]

MOST_CHANGES = 6
"""So many changes stand on the first screen, of every run."""
MOST_FAULTS = 5
"""So many groups of unhealthy checkpoints stand on the first screen."""
MAP_LINES = 12
_STYLES = {"serious": "bold red", "warning": "yellow"}


@dataclass(frozen=True)
class CheckpointFault:
    """What is wrong with one checkpoint, or with several in a row, in a sentence."""

    places: str
    sentence: str
    severity: Severity

    @property
    def line(self) -> str:
        """Places and sentence."""
        return f"{self.places}: {self.sentence}"


def answer_of(scan: Scan) -> list[str]:
    """Say how many are unhealthy, then the first finding of each, together where it is the same."""
    return [_count_sentence(scan), *(fault.line for fault in faults_of(scan))]


def screen_of(scan: Scan, *, everything: bool) -> Screen:
    """Return the answer, the changes, the table, the map."""
    parts: list[Sentence | TextTable | Drawing] = [Sentence(_count_sentence(scan), "bold")]
    faults = faults_of(scan)
    shown = faults if everything else faults[:MOST_FAULTS]
    parts += [Sentence(fault.line, _STYLES[fault.severity], hang=2) for fault in shown]
    if len(shown) < len(faults):
        parts.append(Sentence(f"{len(faults) - len(shown)} more in the table below.", "dim"))
    if scan.stopped:
        parts.append(Sentence(f"The scan is incomplete: {scan.stopped}."))
    for series, changes in scan.changes:
        parts += _change_parts(series, changes, everything=everything)
    parts += [Sentence(), _checkpoint_table(scan, everything=everything)]
    left = len(scan.checkpoints) - MOST_ROWS
    if left > 0 and not everything:
        bad = len(scan.unhealthy) + len(scan.unmeasured) > MOST_ROWS
        kind = "" if bad else "healthy "
        more = f"1 more {kind}checkpoint" if left == 1 else f"{left} more {kind}checkpoints"
        parts.append(
            Sentence(
                f"{more}; --all shows {'it' if left == 1 else 'them'}.",
                "dim",
                in_python=f"{more}: .screen(everything=True).",
            )
        )
    for series in scan.series:
        parts += _map_parts(series)
    return Screen(tuple(parts))


def verdict_of(one: ScannedCheckpoint) -> tuple[str, str]:
    """The verdict of a checkpoint in a few words, and its severity; "" where it is healthy."""
    if not one.measured:
        return one.status, one.severity
    if one.first is None:
        return "healthy", ""
    more = sum(finding["severity"] != "note" for finding in one.findings) - 1
    others = f" and {more} more" if more else ""
    return f"{one.first['code']} {one.first['name']}{others}", one.severity


def layers_of(one: ScannedCheckpoint) -> str:
    """The layers of the first finding: `3`, `3-7`, `1, 4, 9 …`."""
    return _ranges([str(layer) for layer in one.worst_layers])


def maps_of(series: CheckpointSeries) -> list[LayerSeries]:
    """The maps of a run, the most telling first: those of the changes, then what departs most."""
    from leadline.reading.scan.changes import find_changes

    groups = most_telling(layer_series(series.history), ())
    changed = [str(change.group.address) for change in find_changes(series)]
    order = {address: at for at, address in reversed(list(enumerate(changed)))}
    return sorted(groups, key=lambda group: order.get(str(group.address), len(order)))


def change_cells(change: LayerChange) -> tuple[str, str, str, str, str, str]:
    """What changed, in which layers, since which step, from what to what, and by how much."""
    layers = "all" if change.everywhere else _ranges(change.labels)
    return (
        change.group.title,
        layers,
        f"{change.since:,}",
        f"{format_number(change.before, digits=3)} → {format_number(change.after, digits=3)}",
        factor_text(change.factor),
        "" if math.isnan(change.others) else factor_text(change.others),
    )


def factor_text(factor: float) -> str:
    """Write a factor: `×3.2`, `×0.01`; a dash where there is none."""
    return f"×{format_number(factor, digits=2)}" if math.isfinite(factor) else "–"


def _count_sentence(scan: Scan) -> str:
    total = len(scan.checkpoints)
    bad, broken = len(scan.unhealthy), len(scan.unmeasured)
    subject = "1 checkpoint" if total == 1 else f"{total} checkpoints"
    if not total:
        return "No checkpoint has been measured yet."
    if total == 1 and (bad or broken):
        return f"The only checkpoint {'is unhealthy' if bad else 'could not be measured'}."
    if not bad and not broken:
        many = "Both" if total == 2 else f"All {total}"
        return (
            f"Nothing unusual in {subject}." if total == 1 else f"{many} checkpoints are healthy."
        )
    if broken == total:
        return f"None of {subject} could be measured."
    told: list[str] = []
    if bad:
        told.append(f"{bad} {'is' if bad == 1 else 'are'} unhealthy")
    if broken:
        told.append(f"{broken} could not be measured")
    return f"Of {subject}, {join_words(told)}."


def faults_of(scan: Scan) -> list[CheckpointFault]:
    """The first finding of every checkpoint; neighbours with the same one share it."""
    faults: list[CheckpointFault] = []
    faulty = [one for one in scan.checkpoints if one.measured]
    for code, members in groupby(faulty, key=_fault_of):
        group = list(members)
        finding = group[0].first
        if not code or finding is None:
            continue
        faults.append(CheckpointFault(places_of(group), finding["verdict"], finding["severity"]))
    for one in scan.unmeasured:
        faults.append(CheckpointFault(f"{one.name} ({one.status})", one.reason, "serious"))
    return faults


def facts_of(scan: Scan) -> list[tuple[str, str, str]]:
    """A few facts as label, value and detail."""
    total, measured = len(scan.checkpoints), len(scan.checkpoints) - len(scan.unmeasured)
    seconds = math.fsum(one.seconds for one in scan.checkpoints if math.isfinite(one.seconds))
    facts = [
        ("Checkpoints", f"{total:,}", f"{measured:,} measured"),
        ("Unhealthy", f"{len(scan.unhealthy):,}", "with a finding that is more than a note"),
    ]
    if scan.series:
        first, last = scan.series[0].span
        count = len(scan.series)
        runs = "one training run" if count == 1 else f"the longest of {count} training runs"
        facts.append(("Steps", f"{first:,} to {last:,}", runs))
    facts.append(("Time", f"{seconds / 60:.1f} min", "all workers together"))
    return facts


def _fault_of(one: ScannedCheckpoint) -> tuple[str, str, tuple[int, ...]] | tuple[()]:
    first = one.first
    return () if first is None else (one.group, first["code"], one.worst_layers)


def places_of(group: Sequence[ScannedCheckpoint]) -> str:
    """Name checkpoints that stand in a row: `checkpoint-900 to checkpoint-1200 (4)`."""
    if len(group) == 1:
        return group[0].name
    if len(group) == 2:
        return f"{group[0].name} and {group[1].name}"
    return f"{group[0].name} to {group[-1].name} ({len(group)} checkpoints)"


def _change_parts(
    series: CheckpointSeries, changes: Sequence[LayerChange], *, everything: bool
) -> list[Sentence | TextTable]:
    first, last = series.span
    where = f"over {len(series.checkpoints)} checkpoints of {series.name}"
    steps = f"steps {first:,} to {last:,}"
    if not changes:
        few = len(series.checkpoints) < 4
        why = "too few to tell a change from noise" if few else "no layer changes"
        return [Sentence(), Sentence(f"{where[:1].upper()}{where[1:]} ({steps}): {why}.")]
    shown = changes if everything else changes[:MOST_CHANGES]
    more = f"; {len(changes) - len(shown)} more with --all" if len(shown) < len(changes) else ""
    columns = (
        TableColumn("what changes", wraps=True),
        TableColumn("layers"),
        TableColumn("since step", right=True),
        TableColumn("from → to", gives_way=(1,)),
        TableColumn("by", right=True, style="bold"),
        TableColumn("other layers", right=True, gives_way=(2,)),
    )
    rows = tuple(Row(change_cells(change)) for change in shown)
    title = f"What changes {where} ({steps}{more})"
    return [
        Sentence(),
        Sentence(title, "bold", in_python=title.replace(" with --all", "")),
        TextTable(columns, rows).without_empty_columns(),
    ]


def _checkpoint_table(scan: Scan, *, everything: bool) -> TextTable:
    has_steps = any(one.step is not None for one in scan.checkpoints)
    shown = scan.checkpoints
    if (
        not everything and len(shown) > MOST_ROWS
    ):  # the unhealthy ones, then as many as there is room
        ranked = sorted(shown, key=lambda one: one.measured and one.healthy)[:MOST_ROWS]
        shown = tuple(one for one in shown if one in ranked)
    columns = (
        TableColumn("checkpoint"),
        TableColumn("step", right=True, gives_way=(2,)),
        TableColumn("verdict", wraps=True),
        TableColumn("loss", right=True, notes=(f"loss: on {scan.inputs}",)),
        TableColumn("stream", right=True, notes=("stream: last block over first",)),
        TableColumn("gradient", right=True, notes=("gradient: first block over last",)),
        TableColumn("layers", right=True, gives_way=(1,), notes=("layers: of the first finding",)),
    )
    return TextTable(
        columns, tuple(_row(one, has_steps=has_steps) for one in shown)
    ).without_empty_columns()


def _row(one: ScannedCheckpoint, *, has_steps: bool) -> Row:
    verdict, severity = verdict_of(one)
    style = _STYLES.get(severity, "")
    step = "" if not has_steps or one.step is None else f"{one.step:,}"
    return Row(
        (
            one.name,
            step,
            TableCell((verdict,), style=style),
            "" if math.isnan(one.loss) else format_number(one.loss),
            "" if math.isnan(one.growth) else factor_text(one.growth),
            "" if math.isnan(one.gradient) else factor_text(one.gradient),
            layers_of(one),
        )
    )


def _map_parts(series: CheckpointSeries) -> list[Sentence | Drawing]:
    groups = maps_of(series)
    if not groups:
        return []
    group = groups[0]
    title = f"{group.title} by layer and step, {series.name} ({group.address})"
    return [Sentence(), Sentence(title, "bold", hang=2), HeatDrawing(group, MAP_LINES, series.loss)]


def _ranges(labels: Sequence[str]) -> str:
    """Write numbers as ranges: `2, 5-8`; names of tensors as they are, and not too many."""
    if not all(label.isdigit() for label in labels):
        return ", ".join(labels[:2]) + (" …" if len(labels) > 2 else "")
    numbers = sorted({int(label) for label in labels})
    runs = [
        [number for _, number in members]
        for _, members in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    ]
    words = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return ", ".join(words[:4]) + (" …" if len(words) > 4 else "")
