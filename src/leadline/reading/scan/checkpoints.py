"""The checkpoints of a scan as its record holds them, each with the numbers of its row.

    growth     size of the stream behind the last block over that behind the first
    gradient   size of the gradient at the first block over that at the last

Both are those of the stack where they are farthest from 1.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from leadline.errors import RecordError, UnknownName, shown
from leadline.record import Record
from leadline.record.provenance import number_at, text_at
from leadline.record.run.scanned import CHECKPOINT, MEASUREMENT
from leadline.record.words.summary import leading_quantity

if TYPE_CHECKING:
    from leadline.record import Quantity
    from leadline.record.rows.step_line import StepLine

__all__ = ["ScannedCheckpoint", "checkpoint_record", "lines_by_run", "read_checkpoints"]


@dataclass(frozen=True)
class ScannedCheckpoint:
    """One row of a scan. What was not measured is NaN; `reason` says why a checkpoint has no rows."""

    name: str
    run: str
    source: str
    step: int | None
    group: str
    status: str
    reason: str
    healthy: bool
    answer: tuple[str, ...]
    findings: tuple[Mapping[str, Any], ...]
    shape: tuple[str, float]
    """Class and number of parameters: those of one training run are alike in both."""
    loss: float = math.nan
    growth: float = math.nan
    gradient: float = math.nan
    seconds: float = math.nan

    @property
    def measured(self) -> bool:
        """Whether it has rows."""
        return self.status == "measured"

    @property
    def first(self) -> Mapping[str, Any] | None:
        """The first finding that is more than a note."""
        return next((one for one in self.findings if one["severity"] != "note"), None)

    @property
    def worst_layers(self) -> tuple[int, ...]:
        """The layers that the first finding names."""
        return () if self.first is None else tuple(self.first.get("layers") or ())

    @property
    def severity(self) -> str:
        """How bad it is: that of the first finding, serious where it was not measured; or ""."""
        if not self.measured:
            return "serious"
        return "" if self.first is None else self.first["severity"]

    def worse_than(self, severities: Sequence[str]) -> bool:
        """Whether it has a finding of one of these severities, or could not be measured."""
        return not self.measured or any(one["severity"] in severities for one in self.findings)


def read_checkpoints(record: Record) -> tuple[ScannedCheckpoint, ...]:
    """Return the checkpoints of a scan: by the folders that they share, then by step or name."""
    known = record.provenance
    entries = [value for key, value in known.items() if key.startswith(CHECKPOINT)]
    lines = lines_by_run(record)
    stream, gradient = (leading_quantity(record, topic) for topic in ("stream", "gradient"))
    checkpoints = [
        _checkpoint(
            entry,
            growth=_ratio(lines.get(entry["run"], ()), stream, backward=False),
            gradient=_ratio(lines.get(entry["run"], ()), gradient, backward=True),
        )
        for entry in entries
    ]
    groups = {group: at for at, group in enumerate(sorted({one.group for one in checkpoints}))}
    return tuple(
        sorted(
            checkpoints,
            key=lambda one: (groups[one.group], one.step is None, one.step or 0, one.name),
        )
    )


def lines_by_run(record: Record) -> Mapping[str, Sequence[StepLine]]:
    """Return the headline of every quantity at every site, by run."""
    lines: defaultdict[str, list[StepLine]] = defaultdict(list)
    for line in record.step_lines():
        lines[line.run].append(line)
    return lines


def checkpoint_record(record: Record, name: str) -> Record:
    """Return the record of one checkpoint, as `leadline.diagnose` would have returned it."""
    entries = {
        key.removeprefix(CHECKPOINT): value
        for key, value in record.provenance.items()
        if key.startswith(CHECKPOINT)
    }
    if name not in entries:
        raise UnknownName("checkpoint of this scan", name, entries)
    entry = entries[name]
    if entry["status"] != "measured":
        raise RecordError(f"The checkpoint {shown(name)} was not measured: {entry['reason']}")
    readings = record.select(run=entry["run"])
    names = {reading.quantity for reading in readings}
    single = Record()
    for quantity, definition in record.quantities.items():
        if quantity in names:
            single.describe(definition)
    with single.together():
        single.append(replace(reading, run="", step=0) for reading in readings)
        for key, value in record.provenance[f"{MEASUREMENT}{name}"].items():
            single.note(key, value)
    return single


def _checkpoint(entry: Mapping[str, Any], *, growth: float, gradient: float) -> ScannedCheckpoint:
    loss = number_at(entry, "loss")
    return ScannedCheckpoint(
        name=entry["name"],
        run=entry["run"],
        source=entry["source"],
        step=entry["step"],
        group=entry["group"],
        status=entry["status"],
        reason=entry["reason"],
        healthy=bool(entry.get("healthy")),
        answer=tuple(entry.get("answer") or ()),
        findings=tuple(entry.get("findings") or ()),
        shape=(text_at(entry, "class"), number_at(entry, "parameters") or 0.0),
        loss=math.nan if loss is None else loss,
        growth=growth,
        gradient=gradient,
        seconds=number_at(entry, "seconds") or 0.0,
    )


def _ratio(lines: Sequence[StepLine], quantity: Quantity | None, *, backward: bool) -> float:
    """The value behind the last block over that behind the first, of a gradient the other way round."""
    if quantity is None:
        return math.nan
    stacks: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for line in lines:
        site = line.site
        if line.quantity == quantity.name and site.sublayer is None and site.layer > 0:
            stacks[site.stack][site.layer] = line.values[-1]
    ratios: list[float] = []
    for by_layer in stacks.values():
        ends = by_layer[min(by_layer)], by_layer[max(by_layer)]
        numerator, denominator = ends if backward else reversed(ends)
        ratios.append(numerator / denominator if denominator else math.nan)
    return max(ratios, key=_distance_from_one, default=math.nan)


def _distance_from_one(ratio: float) -> float:
    if not math.isfinite(ratio):
        return math.inf
    return abs(math.log(ratio)) if ratio > 0 else math.inf
