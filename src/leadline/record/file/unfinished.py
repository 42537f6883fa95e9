"""A measurement that was cut off goes on where it stood, from its own file.

While it grows, the record of a long measurement carries the provenance entry `unfinished`: what was
asked, and which parts of it have ended. A part's rows and its name in that entry are written in one
transaction, so that a part is in the file as a whole or not at all. The last transaction takes the
entry away: a record without it is finished.

The record lives in memory until it holds a row, and stands in its file from then on: a request that
turns out to measure nothing leaves what stood there before.

Its seconds are summed over all sittings, each up to the last part that it ended.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from leadline.errors import RecordError
from leadline.record.file.store import is_record_file
from leadline.record.provenance import decode, encode, value_at
from leadline.record.record import Record
from leadline.record.rows.site import Site
from leadline.record.words.unfinished import UNFINISHED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from leadline.record.rows.finding import Finding
    from leadline.record.rows.quantity import Quantity
    from leadline.record.rows.reading import Reading

__all__ = [
    "UNFINISHED",
    "Growing",
    "Refusal",
    "begun",
    "is_unfinished",
    "refuse_foreign",
    "refuse_unfinished",
]

Refusal = tuple[tuple[str, ...], Site, str]
"""Names of quantities, the site that has no number of them, and why."""


class Growing:
    """A record that grows part by part. `path` is its file, None where it stays in memory.

    `started` is when this sitting began, by `time.perf_counter`; now, if it is not given.
    """

    def __init__(self, record: Record, path: Path | None, *, started: float | None = None) -> None:
        self.path = path
        self._record = record
        self._started = time.perf_counter() if started is None else started
        self._before: float = self._state["seconds"]
        self._keep()

    @classmethod
    def begin(
        cls,
        record: Record,
        path: Path | None,
        *,
        request: Mapping[str, Any],
        parts: int,
        started: float | None = None,
    ) -> Growing:
        """Begin with what a record holds already; `parts` more are to come."""
        now = time.perf_counter()
        state = {"request": dict(request), "parts": parts, "finished": {}, "carried": {}}
        # What the record holds already took its time, too, and is kept with it.
        record.note(UNFINISHED, {**state, "seconds": 0.0 if started is None else now - started})
        return cls(record, path, started=now)

    @property
    def record(self) -> Record:
        """All that stands there so far."""
        return self._record

    @property
    def seconds(self) -> float:
        """What it took so far: the sittings before, up to their last part, and this one."""
        return self._before + time.perf_counter() - self._started

    @property
    def finished(self) -> frozenset[str]:
        """The names of the parts that have ended."""
        return frozenset(self._state["finished"])

    @property
    def carried(self) -> dict[str, Any]:
        """What the parts that have ended left for later ones."""
        return self._state["carried"]

    @property
    def refused(self) -> list[Refusal]:
        """What the parts that have ended could not measure."""
        return [
            (tuple(one["quantities"]), Site(*one["site"]), one["why"])
            for those in self._state["finished"].values()
            for one in those
        ]

    def add(
        self,
        part: str,
        quantities: Sequence[Quantity],
        readings: Sequence[Reading],
        *,
        refused: Sequence[Refusal],
        carried: Mapping[str, Any],
    ) -> None:
        """End a part: its rows, what it refused and its name, all or nothing."""
        state = self._state
        state["finished"][part] = [
            {
                "quantities": names,
                "site": [site.stack, site.layer, site.sublayer, site.point],
                "why": why,
            }
            for names, site, why in refused
        ]
        state["carried"] = dict(carried)
        state["seconds"] = self.seconds
        with self._record.together():
            for quantity in quantities:
                self._record.describe(quantity)
            self._record.append(readings)
            self._record.note(UNFINISHED, state)
        self._keep()

    def end(self, notes: Mapping[str, Any], findings: Sequence[Finding]) -> Record:
        """The last words; the finished record. That of a file is open for reading."""
        with self._record.together():
            for key, value in notes.items():
                self._record.note(key, value)
            for finding in findings:
                self._record.add_finding(finding)
            self._record.forget(UNFINISHED)
        if self.path is None:
            return self._record
        self.close()
        return Record.open(self.path)

    def close(self) -> None:
        """Let go of the file; nothing happens to a record in memory."""
        if self._record.path is not None:
            self._record.close()

    def _keep(self) -> None:
        if self.path is not None and self._record.path is None and len(self._record):
            self._record.save(self.path)
            self._record = Record.reopen(self.path)

    @property
    def _state(self) -> dict[str, Any]:
        return self._record.provenance[UNFINISHED]


def begun(path: Path, request: Mapping[str, Any]) -> Record | None:
    """The unfinished record of this very request, to be added to; None where there is none.

    An unfinished record of another request is refused, so that nothing is lost.
    """
    if not is_unfinished(path):
        return None
    record = Record.reopen(path)
    known: dict[str, Any] = value_at(record.provenance, UNFINISHED, "request") or {}
    asked = decode(encode(UNFINISHED, request))
    others = [key for key in asked if known.get(key) != asked[key]]
    if others:
        record.close()  # which folds the log of a writer that was killed into the file
        where = ", ".join(f"the {key}" for key in others)
        raise RecordError(
            f"{path} holds a measurement that was cut off and is another one than asked for (it "
            f"differs in {where}); ask for the same again to go on with it, choose another file, "
            "or remove it."
        )
    return record


def refuse_unfinished(path: Path) -> None:
    """Refuse to write over a measurement that was cut off and can go on."""
    if is_unfinished(path):
        Record.reopen(path).close()
        raise RecordError(
            f"{path} holds a measurement that was cut off and is another one than asked for; ask "
            "for the same again to go on with it, choose another file, or remove it."
        )


def refuse_foreign(path: Path) -> None:
    """Refuse to write over what is no record; an empty file is nothing."""
    if path.exists() and (path.is_dir() or path.stat().st_size) and not is_record_file(path):
        raise RecordError(
            f"{path} exists and is not a record, so it is not overwritten; choose another name."
        )


def is_unfinished(path: Path) -> bool:
    """Whether the file is a record that was cut off; what cannot be read is none."""
    if not path.exists() or not is_record_file(path):
        return False
    try:
        with Record.open(path) as found:
            return UNFINISHED in found.provenance
    except RecordError:
        return False
