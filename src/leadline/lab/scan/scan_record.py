"""The record of a scan: what it says before the first checkpoint, and what each checkpoint adds.

    "instrument"        that it is a scan: its settings, versions, and "stopped": why it is
                        incomplete, or None
    "checkpoint:NAME"   of every checkpoint: its source, step, status, verdict, findings; "run" is
                        the name of its rows
    "measurement:NAME"  of every one that was measured: the provenance of the measurement

The rows of a checkpoint and its entries come in one transaction. A record is append-only, so a
checkpoint whose files have changed gets rows under another name, `NAME (2)`, and its entry names
the latest ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from leadline.errors import LabError, RecordError
from leadline.instruments.passes.provenance import versions
from leadline.lab.cell import CellResult
from leadline.lab.scan.settings import ScanSettings
from leadline.lab.scan.sources import CheckpointSource
from leadline.record import Record
from leadline.record.provenance import decode, encode
from leadline.record.run.scanned import CHECKPOINT, MEASUREMENT, SCAN

__all__ = [
    "RUNNING",
    "add_checkpoint",
    "drop_checkpoints",
    "entries_of",
    "entry_for",
    "note_end",
    "open_scan",
]

RUNNING = "it still runs, or was cut off; the same scan on this file goes on"
"""What the record says until every checkpoint has its entry."""


def open_scan(path: Path, settings: ScanSettings) -> Record:
    """Begin the record of a scan, or open the one that the same scan began; refuse any other.

    The checkpoints may be others than before: a training run writes more of them.
    """
    if path.exists():
        return _go_on(path, settings)
    with Record() as record:
        record.note("instrument", _about(settings, stopped=RUNNING))
        record.note("versions", versions())
        record.save(path)
    return Record.reopen(path)


def entries_of(record: Record) -> dict[str, dict[str, Any]]:
    """Return the entries of the checkpoints that have one, by name."""
    return {
        key.removeprefix(CHECKPOINT): value
        for key, value in record.provenance.items()
        if key.startswith(CHECKPOINT)
    }


def entry_for(
    checkpoint: CheckpointSource, fingerprint: str, entries: Mapping[str, Mapping[str, Any]]
) -> str | None:
    """Return the name under which a checkpoint is in the record.

    The same place is the same checkpoint, and so are the same files in another place.
    """
    for name, entry in entries.items():
        if entry["source"] == checkpoint.source:
            return name
    entry = entries.get(checkpoint.name)
    if entry is not None and fingerprint and entry["fingerprint"] == fingerprint:
        return checkpoint.name
    return None


def add_checkpoint(record: Record, result: CellResult) -> dict[str, Any]:
    """Add the rows and the entries of a checkpoint in one transaction; return its entry."""
    facts = dict(result.facts)
    measurement = facts.pop("measurement", None)
    entry = {**facts, "run": result.run}
    name = facts["name"]
    with record.together():
        for quantity in result.quantities:
            record.describe(quantity)
        record.append(result.readings)
        record.note(f"{CHECKPOINT}{name}", entry)
        if measurement is None:
            record.forget(f"{MEASUREMENT}{name}")
        else:
            record.note(f"{MEASUREMENT}{name}", measurement)
    return entry


def drop_checkpoints(record: Record, names: Sequence[str]) -> None:
    """Remove the entries of checkpoints that have no rows."""
    with record.together():
        for name in names:
            record.forget(f"{CHECKPOINT}{name}")


def note_end(record: Record, settings: ScanSettings) -> None:
    """Note that every checkpoint has its entry."""
    record.note("instrument", _about(settings, stopped=None))


def _about(settings: ScanSettings, *, stopped: str | None) -> dict[str, Any]:
    return {"name": SCAN, "settings": settings.to_json(), "stopped": stopped}


def _go_on(path: Path, settings: ScanSettings) -> Record:
    with Record.open(path) as record:
        about: Any = record.provenance.get("instrument")
    if not isinstance(about, dict) or about.get("name") != SCAN:
        raise RecordError(f"{path} holds a record that is no scan; choose another file.")
    there, here = about.get("settings") or {}, decode(encode("settings", settings.to_json()))
    for name in dict.fromkeys((*there, *here)):
        if there.get(name) != here.get(name):
            raise LabError(
                f"{path} holds a scan with other settings: {name} is "
                f"{_words(there.get(name))} there and {_words(here.get(name))} here. Ask for the "
                "same to go on with it, or choose another file."
            )
    record = Record.reopen(path)
    record.note("instrument", _about(settings, stopped=RUNNING))
    return record


def _words(value: Any) -> str:
    return "not set" if value is None or value == [] else str(value)
