"""Resume a measurement that was interrupted, from its own file.

While it grows, the record of a long measurement carries the provenance entry `unfinished`: the
request, and which parts of it have ended. A part's rows and its name in that entry are written in one
transaction, so that a part is in the file as a whole or not at all. The last transaction takes the
entry away: a record without it is finished.

The record lives in memory until it holds a row, and in its file from then on: a request that turns
out to measure nothing leaves an older file as it was.

Its seconds are summed over all sittings, each up to the last part that it ended.
"""

from __future__ import annotations

import copy
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
    "GrowingRecord",
    "Refusal",
    "is_unfinished",
    "refuse_foreign",
    "refuse_unfinished",
    "resume_record",
]

Refusal = tuple[tuple[str, ...], Site, str]
"""Names of quantities, the site that has no number of them, and why."""


class GrowingRecord:
    """Adds to a record part by part. `path` is its file, None where it stays in memory.

    `started` is when this sitting began, by `time.perf_counter`; the default is now.
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
    ) -> GrowingRecord:
        """Start from what a record holds already; `parts` more parts are to come."""
        now = time.perf_counter()
        state = {"request": dict(request), "parts": parts, "finished": {}, "carried": {}}
        # The seconds count what was spent on the rows that the record holds already.
        record.note(UNFINISHED, {**state, "seconds": 0.0 if started is None else now - started})
        return cls(record, path, started=now)

    @property
    def record(self) -> Record:
        """The record with all parts that have ended."""
        return self._record

    @property
    def seconds(self) -> float:
        """The seconds spent so far: earlier sittings up to their last part, and this one."""
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
            (tuple(refusal["quantities"]), Site(*refusal["site"]), refusal["why"])
            for refusals in self._state["finished"].values()
            for refusal in refusals
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
        """Write a part that has ended: its rows, its refusals and its name, all or nothing."""
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
        """Write the last notes and findings, and return the finished record, open for reading."""
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
        """Close the file; a record in memory stays open."""
        if self._record.path is not None:
            self._record.close()

    def _keep(self) -> None:
        if self.path is not None and self._record.path is None and len(self._record):
            self._record.save(self.path)
            self._record = Record.reopen(self.path)

    @property
    def _state(self) -> dict[str, Any]:
        # A copy: the record keeps what it has read, and changing that would change the record.
        return copy.deepcopy(self._record.provenance[UNFINISHED])


def resume_record(path: Path, request: Mapping[str, Any]) -> Record | None:
    """Open the unfinished record of this request to add to it; None where there is none.

    An unfinished record of another request is refused, so that nothing is lost.
    """
    if not is_unfinished(path):
        return None
    record = Record.reopen(path)
    old_request: dict[str, Any] = value_at(record.provenance, UNFINISHED, "request") or {}
    new_request = decode(encode(UNFINISHED, request))
    differences = [key for key in new_request if old_request.get(key) != new_request[key]]
    if differences:
        record.close()  # which folds the log of a writer that was killed into the file
        where = ", ".join(f"the {key}" for key in differences)
        raise RecordError(
            f"{path} holds a measurement of another request that was cut off (it differs in "
            f"{where}); repeat that request to resume it, choose another file, or remove this one."
        )
    return record


def refuse_unfinished(path: Path) -> None:
    """Refuse to overwrite an unfinished measurement, which could be resumed."""
    if is_unfinished(path):
        Record.reopen(path).close()
        raise RecordError(
            f"{path} holds a measurement of another request that was cut off; repeat that request "
            "to resume it, choose another file, or remove this one."
        )


def refuse_foreign(path: Path) -> None:
    """Refuse to overwrite a file that is not a record; an empty file may be overwritten."""
    if path.exists() and (path.is_dir() or path.stat().st_size) and not is_record_file(path):
        raise RecordError(
            f"{path} exists and is not a record, so it is not overwritten; choose another name."
        )


def is_unfinished(path: Path) -> bool:
    """Whether the file is an unfinished record; a file that cannot be read is not."""
    if not path.exists() or not is_record_file(path):
        return False
    try:
        with Record.open(path) as record:
            return UNFINISHED in record.provenance
    except RecordError:
        return False
