"""Training runs side by side: where their curves start and where they end.

Curves are matched by quantity. Records of several runs (sweeps) are matched by run instead, and
then their validation losses alone are compared. The first record that has a curve is the measure
of the others, at the last step of each: a ratio where the scale is logarithmic, else a difference.
A loss of a run that diverged has no distance, to either side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from leadline.record.provenance import number_at, strict_number
from leadline.record.run.curve import curve_rows
from leadline.record.run.ending import ending_of
from leadline.record.words.numbers import format_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.record import Record
    from leadline.record.rows.quantity import AxisScale
    from leadline.record.run.curve import Curve
    from leadline.record.run.ending import RunEnding

__all__ = ["CurveComparison", "change_text", "compare_curves", "run_endings", "task_entropies"]


@dataclass(frozen=True, slots=True)
class CurveComparison:
    """One curve in all records; a record without it has None."""

    label: str
    quantity: str
    scale: AxisScale
    sides: tuple[Curve | None, ...]
    diverged: tuple[bool, ...] = ()
    """For each record whether this is a loss of a run that diverged; empty where none is."""

    @property
    def measure(self) -> Curve:
        """The curve that the others are compared with."""
        return next(side for side in self.sides if side is not None)

    @property
    def shared(self) -> bool:
        """Whether at least two records have it."""
        return sum(side is not None for side in self.sides) > 1

    def lost(self, side: Curve) -> bool:
        """Whether a side is a loss of a run that diverged, so that its end is no result."""
        return any(
            gone for one, gone in zip(self.sides, self.diverged, strict=False) if one is side
        )

    def last_text(self, side: Curve) -> str:
        """The last value of a side in words."""
        return "diverged" if self.lost(side) else format_number(side.last)

    @property
    def steps_differ(self) -> bool:
        """Whether the records were not last read at the same step."""
        return len({side.steps[-1] for side in self.sides if side is not None}) > 1

    @property
    def distance(self) -> float:
        """The largest difference over the largest size; infinite where steps differ."""
        curves = [side for side in self.sides if side is not None]
        if any(side.steps != self.measure.steps for side in curves):
            return math.inf
        values = np.array([side.values for side in curves])
        if np.array_equal(np.isfinite(values).all(axis=0), np.isfinite(values).any(axis=0)):
            finite = values[:, np.isfinite(values).all(axis=0)]
            largest = float(np.abs(finite).max(initial=0.0)) or 1.0
            return float(np.ptp(finite / largest, axis=0).max(initial=0.0))
        return math.inf

    def to_json(self) -> dict[str, Any]:
        """Return it as strict JSON."""
        return {
            "label": self.label,
            "quantity": self.quantity,
            "records": [None if side is None else self._side(side) for side in self.sides],
        }

    def _side(self, side: Curve) -> dict[str, Any]:
        apart = self.lost(side) or self.lost(self.measure)
        return {
            "first": strict_number(side.first),
            "last": strict_number(side.last),
            "diverged": self.lost(side),
            "difference_at_last": None if apart else strict_number(side.last - self.measure.last),
            "steps": list(side.steps),
            "values": [strict_number(float(value)) for value in side.values],
        }


def compare_curves(records: Sequence[Record]) -> tuple[CurveComparison, ...]:
    """Match the curves of the records."""
    rows_by_record = [{row.label: row for row in curve_rows(record)} for record in records]
    labels = dict.fromkeys(label for rows in rows_by_record for label in rows)
    matched: list[CurveComparison] = []
    for label in labels:
        row = next(rows[label] for rows in rows_by_record if label in rows)
        sides = tuple(rows[label].curve if label in rows else None for rows in rows_by_record)
        diverged = tuple(label in rows and rows[label].diverged for rows in rows_by_record)
        matched.append(CurveComparison(label, row.curve.quantity, row.scale, sides, diverged))
    return tuple(matched)


def change_text(row: CurveComparison, side: Curve) -> str:
    """Say how far a curve ends from the measure: ×1.2, or -0.31; nothing for the measure."""
    measure = row.measure
    if side is measure:
        return ""
    if row.lost(side) or row.lost(measure):
        return "-"
    if row.scale == "log" and side.last > 0 and measure.last > 0:
        ratio = side.last / measure.last
        return f"×{format_number(ratio, digits=3)}" if math.isfinite(ratio) else "-"
    change = side.last - measure.last
    return f"{change:+.3g}" if math.isfinite(change) else "-"


def run_endings(records: Sequence[Record]) -> tuple[RunEnding | None, ...]:
    """Return how the run of each record ended; None where it says nothing."""
    return tuple(ending_of(record) for record in records)


def task_entropies(record: Record) -> dict[str, float]:
    """Return the unigram and bigram entropy of the task of a training run, if it says them."""
    entropies = {kind: number_at(record.provenance, "task", kind) for kind in ("unigram", "bigram")}
    return {kind: value for kind, value in entropies.items() if value is not None}
