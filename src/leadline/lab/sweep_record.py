"""The record of a sweep: what it says before the first cell, and what each cell adds.

    "sweep"        name, digest, axes with their labels, seeds, what is fixed, number of cells,
                   the full description, and "stopped": why it is incomplete, or None
    "tasks"        each task with its unigram and bigram entropies
    "cell:RUN"     of every cell that has ended: labels, seed, status, reason, loss, cost, time,
                   and what alarms said of its gauges

The rows of a cell and its entry come in one transaction: a cell is in the record completely or
not at all. Times and hosts stand in the entries, never in rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from leadline.errors import LabError
from leadline.instruments.passes.provenance import versions
from leadline.lab.cell import CellResult
from leadline.lab.grid import Sweep
from leadline.reading.watch.replay import replay
from leadline.record import Record
from leadline.record.provenance import decode, encode
from leadline.record.run.training import TRAINING

__all__ = ["CELL", "RUNNING", "add_cells", "ended_cells", "note_stop", "open_record"]

CELL = "cell:"
RUNNING = "it still runs, or was cut off; the same sweep on this file goes on"
"""What the record says as long as the sweep is neither complete nor over its budget."""
_SHOWN = 3
"""So many differences between two sweeps are named."""


def open_record(path: Path, what: Sweep, tasks: Mapping[str, Any]) -> Record:
    """Begin the record of a sweep, or open the one that the same sweep began; refuse any other.

    A record whose tasks have changed since, such as a text that was edited, is refused too: its
    cells have learned something else.

    A new record is written beside its place and moved there in one step, so that the file is a
    record of a sweep from its first moment.
    """
    if path.exists():
        return _go_on(path, what, tasks)
    for litter in path.parent.glob(f".{path.name}.*.partial"):
        with suppress(OSError):
            litter.unlink()
    with Record() as record:
        for quantity in TRAINING:
            record.describe(quantity)
        record.note("sweep", _about(what, stopped=RUNNING))
        record.note("tasks", dict(tasks))
        record.note("versions", versions())
        record.save(path)
    return Record.reopen(path)


def ended_cells(record: Record) -> dict[str, dict[str, Any]]:
    """Return the facts of the cells that have ended, by run."""
    return {
        key.removeprefix(CELL): value
        for key, value in record.provenance.items()
        if key.startswith(CELL)
    }


def add_cells(record: Record, results: Iterable[CellResult]) -> None:
    """Add the rows and facts of cells that have ended, in one transaction."""
    with record.together():
        for result in results:
            for quantity in result.quantities:
                record.describe(quantity)
            record.append(result.readings)
            warnings = replay(result.readings, result.quantities)
            said = [{"code": one.code, "verdict": one.verdict} for one in warnings]
            record.note(f"{CELL}{result.run}", {**result.facts, "warnings": said})


def note_stop(record: Record, what: Sweep, reason: str | None) -> None:
    """Note why the sweep is incomplete; None when it is complete."""
    record.note("sweep", _about(what, stopped=reason))


def _about(what: Sweep, *, stopped: str | None) -> dict[str, Any]:
    return {
        "name": what.name,
        "digest": what.digest,
        "axes": [{"name": name, "labels": labels} for name, labels in what.axes.items()],
        "seeds": list(what.seeds),
        "fixed": dict(what.fixed),
        "cells": len(what.cells()),
        "description": what.to_json(),
        "stopped": stopped,
    }


def _go_on(path: Path, what: Sweep, tasks: Mapping[str, Any]) -> Record:
    with Record.open(path) as record:
        about, tasks_there = record.provenance.get("sweep"), record.provenance.get("tasks") or {}
    if not isinstance(about, dict):
        raise LabError(f"{path} holds a record that is not a sweep; choose another file.")
    if about.get("digest") != what.digest:
        differences = _differences(about.get("description") or {}, what.to_json())
        listing = "; ".join(differences[:_SHOWN])
        more = len(differences) - _SHOWN
        raise LabError(
            f"{path} holds another sweep: {listing}{f'; and {more} more' if more > 0 else ''}. "
            "Ask for the same one to go on with it, or choose another file."
        )
    for spelling, facts in tasks_there.items():
        if change := _change(facts, tasks.get(spelling)):
            raise LabError(
                f"The task {spelling} is not what it was when the sweep in {path} began: {change}. "
                "Bring it back to go on, or choose another file to begin anew."
            )
    record = Record.reopen(path)
    note_stop(record, what, RUNNING)
    return record


def _change(there: Mapping[str, Any], here: Mapping[str, Any] | None) -> str:
    """Say in which fact a task differs from what the record says; empty if it does not."""
    if here is None:
        return "it cannot be read now"
    if there.get("digest") != here.get("digest"):  # before all that follows from it
        return "its text has changed"
    for key in dict.fromkeys((*there, *here)):
        one, other = there.get(key), decode(encode("tasks", here.get(key)))
        if isinstance(one, float) and isinstance(other, float) and math.isclose(one, other):
            continue  # the last digits of an entropy are the machine's
        if one != other:
            return f"its {key} is {one} there and {other} here"
    return ""


def _differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """List where two descriptions differ: the name, the seeds, what is fixed, the axes."""
    one, other = _flat(there), _flat(here)
    return [
        f"{key} is {one.get(key, 'not set')} there and {other.get(key, 'not set')} here"
        for key in dict.fromkeys((*one, *other))
        if one.get(key) != other.get(key)
    ] or ["its description differs"]


def _flat(description: Mapping[str, Any]) -> dict[str, str]:
    entries = {"the name": str(description.get("name"))}
    for index, grid in enumerate(description.get("grids", ())):
        place = f" of grid {index + 1}" if index else ""
        for axis in grid["axes"]:
            labels = ",".join(str(setting["label"]) for setting in axis["settings"])
            entries[f"the axis {axis['name']}{place}"] = labels
            for setting in axis["settings"]:
                for name, value in setting["changes"].items():
                    if name == axis["name"]:
                        continue  # the label says it
                    entries[f"{name} at {axis['name']}={setting['label']}{place}"] = str(value)
        entries.update({f"{name}{place}": str(value) for name, value in grid["fixed"].items()})
    entries["seeds"] = ",".join(map(str, description.get("seeds", ())))
    entries.update({name: str(value) for name, value in description.get("fixed", {}).items()})
    return entries
