"""The map of what trains: designs by depth, from the record of a sweep.

A place of the map is a row (all labels but the depth) and a depth. A cell trains when its
validation loss is at least `margin` nats below the unigram entropy of its task, a place when at
least `share` of its seeds do. Beside the loss stands the gauge that told the two kinds of cells
apart best, at the earliest step at which it did.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leadline.errors import RecordError, shown
from leadline.reading.map.cells import read_sweep
from leadline.reading.map.gauge_prediction import best_prediction, gauge_table, predict
from leadline.reading.map.places import MapPlace, MapRow, usable_depth
from leadline.record import check_record
from leadline.record.provenance import strict_number
from leadline.record.words.screen import Screen, Showable

if TYPE_CHECKING:
    from leadline.reading.map.cells import Entropy, Label, SweepAxis, SweepCell, SweepFacts
    from leadline.reading.map.gauge_prediction import GaugeTable, Prediction
    from leadline.reading.map.places import Depth
    from leadline.record import Record

__all__ = ["MARGIN", "SHARE", "ShownGauge", "Trainability", "trainability"]

MARGIN, SHARE = 0.3, 2 / 3
"""Nats below the unigram entropy, and the share of the seeds: two of three."""


@dataclass(frozen=True, slots=True)
class ShownGauge:
    """The gauge that stands beside the loss, and the step of its readings."""

    gauge: str
    step: int
    auc: float


@dataclass(frozen=True)
class Trainability(Showable):
    """The map. `axis` is what its columns are; `unrun` counts the cells that were not run yet."""

    name: str
    axis: str
    depths: tuple[Depth, ...]
    rows: tuple[MapRow, ...]
    seeds: tuple[int, ...]
    margin: float
    share: float
    entropies: Mapping[str, Entropy]
    predictions: tuple[Prediction, ...]
    shown: ShownGauge | None
    unrun: int

    @property
    def cells(self) -> list[SweepCell]:
        """All cells that have ended."""
        return [cell for row in self.rows for place in row.places if place for cell in place.cells]

    def row(self, name: str) -> MapRow:
        """Return the row of that name."""
        for row in self.rows:
            if row.name == name:
                return row
        raise RecordError(
            f"The map has no row called {name!r}. It has: {'; '.join(r.name for r in self.rows)}."
        )

    def screen(self, *, everything: bool = False) -> Screen:
        """Return what trains and how deep, the map, and what is not in it."""
        from leadline.reading.map.terminal import map_screen

        return map_screen(self, everything=everything)

    def to_json(self) -> dict[str, Any]:
        """Return the map as strict JSON: NaN is null."""
        from leadline.reading.map.text import map_answer

        return {
            "schema": 1,
            "name": self.name,
            "answer": map_answer(self),
            "axis": self.axis,
            "depths": list(self.depths),
            "margin": self.margin,
            "share": self.share,
            "seeds": list(self.seeds),
            "entropies": {
                task: {"unigram": strict_number(one.unigram), "bigram": strict_number(one.bigram)}
                for task, one in self.entropies.items()
            },
            "rows": [
                {
                    "name": row.name,
                    "labels": dict(row.labels),
                    "usable_depth": None if row.usable is None else row.usable.to_json(),
                    "places": [place.to_json() for place in row.places if place is not None],
                }
                for row in self.rows
            ],
            "predictions": [one.to_json() for one in self.predictions],
            "shown": None
            if self.shown is None
            else {
                "gauge": self.shown.gauge,
                "step": self.shown.step,
                "auc": strict_number(self.shown.auc),
            },
            "not_run": self.unrun,
        }


def trainability(
    record: Record, *, margin: float = MARGIN, share: float = SHARE, depth: str = "depth"
) -> Trainability:
    """Compute the map of a sweep: which designs train at which depth.

    `depth` names the axis of its columns.
    """
    check_record(record)
    if not isinstance(share, int | float) or not 0 < share <= 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RecordError(
            f"The share of the seeds is {shown(share)}; give a number above 0 and up to 1."
        )
    if not isinstance(margin, int | float) or not math.isfinite(margin):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RecordError(f"The margin is {shown(margin)} nats; give a finite number.")
    facts = read_sweep(record, margin=margin)
    table = gauge_table(record)
    predictions = predict(table, facts.cells)
    steps = {
        gauge: best.step if (best := best_prediction(predictions, gauge=gauge)) else min(readings)
        for gauge, readings in table.items()
    }
    depths, rows = _rows(facts, table, steps, depth=depth, share=share)
    return Trainability(
        name=facts.name,
        axis=depth,
        depths=depths,
        rows=rows,
        seeds=facts.seeds,
        margin=margin,
        share=share,
        entropies=facts.entropies,
        predictions=predictions,
        shown=_choose_gauge(predictions, steps),
        unrun=facts.unrun,
    )


def _choose_gauge(predictions: Sequence[Prediction], steps: Mapping[str, int]) -> ShownGauge | None:
    """Return the best gauge; where none can be judged, the first one at its first step."""
    best = best_prediction(predictions)
    if best is not None:
        return ShownGauge(best.gauge, best.step, best.auc)
    return next((ShownGauge(gauge, step, math.nan) for gauge, step in steps.items()), None)


def _rows(
    facts: SweepFacts, table: GaugeTable, steps: Mapping[str, int], *, depth: str, share: float
) -> tuple[tuple[Depth, ...], tuple[MapRow, ...]]:
    column = _columns(facts, depth)
    across = [axis for axis in facts.axes if axis.name != depth]
    cells: dict[tuple[Label, ...], dict[Depth, list[SweepCell]]] = {}
    missing: dict[tuple[Label, ...], dict[Depth, int]] = {}
    for cell in facts.cells:
        row = tuple(cell.labels[axis.name] for axis in across)
        at = column(cell.labels, cell.depth)
        assert at is not None
        cells.setdefault(row, {}).setdefault(at, []).append(cell)
    for unrun in facts.missing or ():
        at = column(unrun.labels, unrun.depth)
        if at is not None:  # else no column is known, and the cell is counted as not run alone
            counts = missing.setdefault(tuple(unrun.labels[axis.name] for axis in across), {})
            counts[at] = counts.get(at, 0) + 1
    depths = tuple(sorted({d for by_row in (cells, missing) for at in by_row.values() for d in at}))
    names = _RowNames(across, alone="all cells" if facts.name in ("", "sweep") else facts.name)
    rows: list[MapRow] = []
    for key in sorted(cells.keys() | missing.keys(), key=names.order):
        here, holes = cells.get(key, {}), missing.get(key, {})
        places = tuple(
            MapPlace(
                depth=d,
                cells=tuple(sorted(here.get(d, ()), key=lambda cell: cell.seed)),
                missing=holes.get(d, 0),
                share=share,
                gauges=_medians(here.get(d, ()), table, steps),
            )
            if d in here or d in holes
            else None
            for d in depths
        )
        labels = {axis.name: label for axis, label in zip(across, key, strict=True)}
        rows.append(MapRow(names.name(key), labels, places, usable_depth(places)))
    return depths, tuple(rows)


def _columns(
    facts: SweepFacts, depth: str
) -> Callable[[Mapping[str, Label], int | None], Depth | None]:
    """Return what gives a cell its column: its label, or the depth of its model."""
    for axis in facts.axes:
        if axis.name == depth and not any(isinstance(label, str) for label in axis.labels):
            return lambda labels, model_depth: _depth(labels[depth])
    if depth != "depth":
        known = ", ".join(axis.name for axis in facts.axes)
        raise RecordError(
            f"The sweep has no axis {depth!r} whose labels are numbers, so its map cannot have "
            f"it as columns. Its axes: {known}."
        )
    return lambda labels, model_depth: model_depth


def _depth(label: Label) -> Depth:
    return float(label) if isinstance(label, str) else label


def _medians(
    cells: Sequence[SweepCell], table: GaugeTable, steps: Mapping[str, int]
) -> dict[str, float]:
    """The median of every gauge over the cells that have it at its step."""
    medians: dict[str, float] = {}
    for gauge, step in steps.items():
        values = [v for cell in cells if (v := table[gauge][step].get(cell.run)) is not None]
        finite = [value for value in values if math.isfinite(value)]
        if values:
            medians[gauge] = statistics.median(finite) if finite else math.nan
    return medians


_ANSWERS = ("yes", "no", "true", "false")
"""Labels that say nothing without the name of their axis."""


class _RowNames:
    """How rows are called and ordered: by the labels of the axes that have more than one.

    A word that no other axis has stands alone, all else (numbers, yes and no) with the name of its
    axis.
    """

    def __init__(self, axes: Sequence[SweepAxis], *, alone: str) -> None:
        self._axes = axes
        self._alone = alone

    def order(self, key: tuple[Label, ...]) -> tuple[int, ...]:
        return tuple(
            axis.labels.index(label) if label in axis.labels else len(axis.labels)
            for axis, label in zip(self._axes, key, strict=True)
        )

    def name(self, key: tuple[Label, ...]) -> str:
        parts = [
            (axis, label)
            for axis, label in zip(self._axes, key, strict=True)
            if len(axis.labels) > 1
        ]
        return ", ".join(self._word(axis, label) for axis, label in parts) or self._alone

    def _word(self, axis: SweepAxis, label: Label) -> str:
        others = [one for other in self._axes if other is not axis for one in other.labels]
        says_nothing = any(one in others or one in _ANSWERS for one in axis.labels)
        if isinstance(label, str) and not says_nothing:
            return label
        return f"{axis.name} {label}"
