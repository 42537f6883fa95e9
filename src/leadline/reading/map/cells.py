"""The cells of a sweep as its record holds them, and which of them train.

A cell trains when its validation loss is at least `margin` nats below the unigram entropy of its
task: a model that has learned the frequencies of the symbols alone stands at that entropy. A cell
that diverged does not train. A cell that failed, that is impossible or that was not run says
nothing either way: it is a hole.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from leadline.errors import RecordError
from leadline.record.provenance import number_at, text_at, value_at
from leadline.record.run.ending import is_cell
from leadline.record.views import written_by

if TYPE_CHECKING:
    from leadline.record import Record

__all__ = [
    "Entropy",
    "Label",
    "MissingCell",
    "SweepAxis",
    "SweepCell",
    "SweepFacts",
    "is_sweep",
    "read_sweep",
]

Label = str | int | float

HOLES = ("failed", "impossible")
"""How a cell ends that was not measured."""


@dataclass(frozen=True, slots=True)
class Entropy:
    """What a task costs a model that knows frequencies alone, in nats per target."""

    unigram: float
    bigram: float


@dataclass(frozen=True, slots=True)
class SweepAxis:
    """One axis of a sweep with all its labels, in the order of their appearance."""

    name: str
    labels: tuple[Label, ...]


@dataclass(frozen=True, slots=True)
class SweepCell:
    """How one cell ended. `loss` is NaN where it diverged; `trains` is None for a hole.

    `alarms` are the codes of the alarms that rang while it was trained.
    """

    run: str
    labels: Mapping[str, Label]
    seed: int
    depth: int
    task: str
    status: str
    reason: str
    steps: int
    loss: float
    trains: bool | None
    alarms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MissingCell:
    """A cell that was not run yet. `depth` is None where the record does not tell it."""

    labels: Mapping[str, Label]
    seed: int
    depth: int | None


@dataclass(frozen=True)
class SweepFacts:
    """What the record of a sweep says about it. `missing` are the cells not run yet.

    `missing` is None where the record does not list what was asked; `unrun` counts them anyway.
    """

    name: str
    axes: tuple[SweepAxis, ...]
    seeds: tuple[int, ...]
    cells: tuple[SweepCell, ...]
    missing: tuple[MissingCell, ...] | None
    unrun: int
    entropies: Mapping[str, Entropy]


def is_sweep(record: Record) -> bool:
    """Say whether a record is that of a sweep."""
    return isinstance(record.provenance.get("sweep"), Mapping)


def read_sweep(record: Record, *, margin: float) -> SweepFacts:
    """Read the cells that have ended, and what is still to be run."""
    provenance = record.provenance
    if not is_sweep(record):
        place = "The record" if record.path is None else f"The record {record.path}"
        writer = written_by(provenance)
        raise RecordError(
            f"{place} is not that of a sweep, so there is no map of it"
            + (f": `leadline {writer}` wrote it" if writer else "")
            + "; `leadline sweep` writes such a record, and `leadline report` shows this one."
        )
    entropies = {
        task: Entropy(
            _number(number_at(entry, "unigram")),
            _number(number_at(entry, "bigram")),
        )
        for task, entry in cast("Mapping[str, Any]", provenance.get("tasks") or {}).items()
    }
    cells = tuple(
        _cell(key.partition(":")[2], entry, entropies, margin=margin)
        for key, entry in provenance.items()
        if is_cell(key)
    )
    axes = tuple(
        SweepAxis(text_at(axis, "name"), tuple(axis.get("labels") or ()))
        for axis in _mappings(value_at(provenance, "sweep", "axes"))
    )
    seeds = cast("Sequence[int]", value_at(provenance, "sweep", "seeds") or ())
    cell_count = int(number_at(provenance, "sweep", "cells") or len(cells))
    return SweepFacts(
        name=text_at(provenance, "sweep", "name"),
        axes=axes,
        seeds=tuple(seeds),
        cells=cells,
        missing=_missing(provenance, cells, seeds),
        unrun=max(0, cell_count - len(cells)),
        entropies=entropies,
    )


def _cell(
    run: str, entry: Mapping[str, Any], entropies: Mapping[str, Entropy], *, margin: float
) -> SweepCell:
    status, task = text_at(entry, "status"), text_at(entry, "task")
    loss = _number(number_at(entry, "loss"))
    trains = None
    if status not in HOLES:
        if task not in entropies:
            raise RecordError(
                f"The cell {run!r} was trained on {task!r}, and the record does not hold the "
                "entropies of that task; run the sweep again to complete it."
            )
        # A loss that is NaN is below nothing.
        trains = loss <= entropies[task].unigram - margin
    return SweepCell(
        run=run,
        labels=cast("Mapping[str, Label]", entry.get("labels") or {}),
        seed=int(number_at(entry, "seed") or 0),
        depth=int(number_at(entry, "depth") or 0),
        task=task,
        status=status,
        reason=text_at(entry, "reason"),
        steps=int(number_at(entry, "steps") or 0),
        loss=loss,
        trains=trains,
        alarms=tuple(text_at(one, "code") for one in _mappings(entry.get("warnings"))),
    )


def _missing(
    provenance: Mapping[str, Any], cells: Sequence[SweepCell], seeds: Sequence[int]
) -> tuple[MissingCell, ...] | None:
    """The cells that the grids of the sweep ask for and that have not ended."""
    description = value_at(provenance, "sweep", "description")
    places = list(_places(cast("Mapping[str, Any]", description or {})))
    if not places:
        return None
    ended = {(_key(cell.labels), cell.seed): cell for cell in cells}
    # Cells that set no depth have the same one, which those of them that have ended tell.
    usual = next(
        (
            ended[_key(labels), seed].depth
            for labels, depth in places
            for seed in seeds
            if depth is None and (_key(labels), seed) in ended
        ),
        None,
    )
    return tuple(
        MissingCell(labels, seed, usual if depth is None else depth)
        for labels, depth in places
        for seed in seeds
        if (_key(labels), seed) not in ended
    )


def _places(
    description: Mapping[str, Any],
) -> Iterator[tuple[Mapping[str, Label], int | None]]:
    """The labels of every place that was asked for, and its depth, if it is set.

    A setting comes before what is fixed in its grid, and that before what is fixed in the sweep.
    """
    for grid in _mappings(description.get("grids")):
        axes = _mappings(grid.get("axes"))
        names = [text_at(axis, "name") for axis in axes]
        for chosen in itertools.product(*(_mappings(axis.get("settings")) for axis in axes)):
            labels = {name: one.get("label") for name, one in zip(names, chosen, strict=True)}
            changes = [cast("Mapping[str, Any]", one.get("changes") or {}) for one in chosen]
            set_by = (*changes, grid.get("fixed"), description.get("fixed"))
            depths = [
                depth
                for fields in set_by
                if (depth := number_at(cast("Mapping[str, Any]", fields or {}), "depth"))
            ]
            yield cast("Mapping[str, Label]", labels), int(depths[0]) if depths else None


def _key(labels: Mapping[str, Label]) -> tuple[tuple[str, Label], ...]:
    return tuple(sorted(labels.items()))


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _mappings(value: object) -> list[Mapping[str, Any]]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return []
    items = cast("Sequence[object]", value)
    return [cast("Mapping[str, Any]", one) for one in items if isinstance(one, Mapping)]
