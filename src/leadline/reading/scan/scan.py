"""A scan as a result: its checkpoints, which of them are unhealthy, what changes over them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from leadline.errors import RecordError
from leadline.reading.scan.changes import LayerChange, find_changes
from leadline.reading.scan.checkpoints import (
    ScannedCheckpoint,
    checkpoint_record,
    lines_by_run,
    read_checkpoints,
)
from leadline.reading.scan.series import CheckpointSeries, find_series
from leadline.record.provenance import strict_json, text_at, value_at
from leadline.record.rows.finding import SEVERITIES, Severity
from leadline.record.words.screen import Screen, Showable

if TYPE_CHECKING:
    from leadline.record import Record

__all__ = ["Scan", "one_checkpoint", "read_scan"]


@dataclass(frozen=True, eq=False)
class Scan(Showable):
    """Every checkpoint of a scan, and the training runs among them, the longest first."""

    record: Record
    checkpoints: tuple[ScannedCheckpoint, ...]
    series: tuple[CheckpointSeries, ...]
    stopped: str

    @property
    def unhealthy(self) -> tuple[ScannedCheckpoint, ...]:
        """Those that were measured and have a finding that is more than a note."""
        return tuple(one for one in self.checkpoints if one.measured and not one.healthy)

    @property
    def unmeasured(self) -> tuple[ScannedCheckpoint, ...]:
        """Those that could not be loaded or measured."""
        return tuple(one for one in self.checkpoints if not one.measured)

    @cached_property
    def changes(self) -> tuple[tuple[CheckpointSeries, tuple[LayerChange, ...]], ...]:
        """What changes over the checkpoints of every training run, the most telling first."""
        return tuple((one, tuple(find_changes(one))) for one in self.series)

    @property
    def answer(self) -> list[str]:
        """The first sentences: which checkpoints are unhealthy and why, and what changes."""
        from leadline.reading.scan.words import answer_of

        return answer_of(self)

    @property
    def inputs(self) -> str:
        """What every checkpoint read: `random tokens`, the name of a file, or texts.

        A model that learns gets worse at random tokens, and that is no illness.
        """
        settings = "instrument", "settings"
        for name in ("text_file", "tokens_file"):
            if described := text_at(self.record.provenance, *settings, name):
                return described.rpartition(" (")[0]  # without the digest of its contents
        texts = value_at(self.record.provenance, *settings, "text")
        return "your texts" if texts else "random tokens, so it may rise with training"

    def worse_than(self, severity: Severity) -> bool:
        """Whether any has a finding at least as severe as this, or could not be measured."""
        severities = SEVERITIES[: SEVERITIES.index(severity) + 1]
        return any(one.worse_than(severities) for one in self.checkpoints)

    def checkpoint(self, name: str) -> Record:
        """Return the record of one checkpoint, as if it had been diagnosed alone."""
        return checkpoint_record(self.record, name)

    def screen(self, *, everything: bool = False) -> Screen:
        """Return what is shown: the answer, what changes, a row per checkpoint, the map."""
        from leadline.reading.scan.words import screen_of

        return screen_of(self, everything=everything)

    def to_json(self) -> dict[str, Any]:
        """Return it as strict JSON, described in docs/scan.md."""
        return {
            "schema": 1,
            "answer": self.answer,
            "stopped": self.stopped or None,
            "checkpoints": [_checkpoint_json(one) for one in self.checkpoints],
            "runs": [
                {
                    "name": series.name,
                    "checkpoints": [one.name for one in series.checkpoints],
                    "steps": [one.step for one in series.checkpoints],
                    "changes": [_change_json(one) for one in changes],
                }
                for series, changes in self.changes
            ],
        }


def read_scan(record: Record) -> Scan:
    """Read a scan from its record: checkpoints of runs by step, those of a zoo by verdict."""
    checkpoints = read_checkpoints(record)
    series = find_series(record, checkpoints, lines_by_run(record))
    if not series:
        ranks = (*SEVERITIES, "")
        checkpoints = tuple(sorted(checkpoints, key=lambda one: ranks.index(one.severity)))
    return Scan(record, checkpoints, series, text_at(record.provenance, "instrument", "stopped"))


def one_checkpoint(record: Record, name: str | None, *, file: str) -> Record:
    """Return the checkpoint of a scan that was named, or the only one; refuse a scan of several."""
    if name is not None:
        return checkpoint_record(record, name)
    measured = [one.name for one in read_checkpoints(record) if one.measured]
    if len(measured) == 1:
        return checkpoint_record(record, measured[0])
    if not measured:
        raise RecordError(f"{file} is a scan in which no checkpoint could be measured.")
    raise RecordError(
        f"{file} is a scan of {len(measured)} checkpoints; name one of them, such as "
        f"{file}:{measured[0]}. `leadline report {file}` shows all of them."
    )


def _checkpoint_json(one: ScannedCheckpoint) -> dict[str, Any]:
    return {
        "name": one.name,
        "source": one.source,
        "step": one.step,
        "status": one.status,
        "reason": one.reason or None,
        "healthy": one.healthy if one.measured else None,
        "answer": list(one.answer),
        "findings": strict_json(list(one.findings)),
        "loss": strict_json(one.loss),
        "stream_growth": strict_json(one.growth),
        "gradient_ratio": strict_json(one.gradient),
        "worst_layers": list(one.worst_layers),
        "seconds": strict_json(one.seconds),
    }


def _change_json(change: LayerChange) -> dict[str, Any]:
    return {
        "quantity": change.group.quantity.name,
        "line": str(change.group.address),
        "layers": list(change.labels),
        "since": change.since,
        "before": strict_json(change.before),
        "after": strict_json(change.after),
        "factor": strict_json(change.factor),
        "factor_of_others": strict_json(change.others),
    }
