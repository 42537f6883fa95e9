"""How well a gauge, read early, tells the cells that will fail from those that will train.

Every gauge has a badness, fixed before any data is seen:

    token cosine             the cosine itself: equal tokens carry no information
    gradient ratio           |log10 ratio|: gradients that vanish or explode on their way
    growth of the stream     |log10 growth|: a stream that dies out or drowns its updates

The area under the ROC curve is the probability that a cell that fails has a larger badness than
one that trains; ties count half. One half is a guess, 1 a perfect order, 0 the order reversed. A
gauge that is not finite counts as the worst.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leadline.record.provenance import strict_number
from leadline.record.run.curve import curves_of
from leadline.record.run.training import GAUGES, TOKEN_COSINE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from leadline.reading.map.cells import SweepCell
    from leadline.record import Record

__all__ = [
    "GUESS",
    "PRESENT",
    "Prediction",
    "area_under_curve",
    "badness",
    "best_prediction",
    "gauge_table",
    "predict",
]

PRESENT = 0.8
"""The share of the cells that a step must have to be considered."""
GUESS = 0.5
"""The area of a gauge that tells nothing."""

GaugeTable = dict[str, dict[int, dict[str, float]]]


@dataclass(frozen=True, slots=True)
class Prediction:
    """How one gauge at one step orders the cells. `auc` is NaN where all train or none does."""

    gauge: str
    step: int
    auc: float
    trained: int
    failed: int

    @property
    def cells(self) -> int:
        """How many cells have the gauge at that step."""
        return self.trained + self.failed

    def to_json(self) -> dict[str, Any]:
        """Return it as strict JSON."""
        return {
            "gauge": self.gauge,
            "step": self.step,
            "auc": strict_number(self.auc),
            "trained": self.trained,
            "failed": self.failed,
        }


def badness(gauge: str, value: float) -> float:
    """Return how bad a value of a gauge is; the larger, the worse."""
    if gauge == TOKEN_COSINE.name:
        return value if math.isfinite(value) else math.inf
    if not math.isfinite(value) or value <= 0:
        return math.inf
    return abs(math.log10(value))


def area_under_curve(failing: Sequence[float], training: Sequence[float]) -> float:
    """Return P(badness of a failing cell > that of a training one), ties half; NaN without both."""
    if not failing or not training:
        return math.nan
    ranked = sorted(training)
    wins = sum(
        bisect.bisect_left(ranked, one) + bisect.bisect_right(ranked, one) for one in failing
    )
    return wins / (2 * len(failing) * len(training))


def gauge_table(record: Record) -> GaugeTable:
    """Read the gauges of all runs: gauge, step, run."""
    known = record.quantities
    table: GaugeTable = {}
    for gauge in (one.name for one in GAUGES if one.name in known):
        steps: dict[int, dict[str, float]] = {}
        for curve in curves_of(record, gauge):
            for step, value in zip(curve.steps, curve.values, strict=True):
                steps.setdefault(step, {})[curve.run] = float(value)
        if steps:
            table[gauge] = dict(sorted(steps.items()))
    return table


def predict(
    table: Mapping[str, Mapping[int, Mapping[str, float]]], cells: Iterable[SweepCell]
) -> tuple[Prediction, ...]:
    """Judge every gauge at every step by the cells that were measured."""
    verdicts = {cell.run: cell.trains for cell in cells if cell.trains is not None}
    predictions: list[Prediction] = []
    for gauge, steps in table.items():
        for step, values in steps.items():
            scores = {run: badness(gauge, value) for run, value in values.items()}
            failing = [
                scores[run] for run, trains in verdicts.items() if run in scores and not trains
            ]
            training = [scores[run] for run, trains in verdicts.items() if run in scores and trains]
            auc = area_under_curve(failing, training)
            predictions.append(Prediction(gauge, step, auc, len(training), len(failing)))
    return tuple(predictions)


def best_prediction(
    predictions: Iterable[Prediction], *, gauge: str | None = None
) -> Prediction | None:
    """Return the earliest prediction with the best area, of one gauge if named.

    A cell that has ended before a step is not judged at it: nothing is predicted any more. Steps
    that fewer than four fifths of the cells have are left aside, where too few are left to judge.
    """
    judged = [one for one in predictions if not math.isnan(one.auc) and gauge in (None, one.gauge)]
    most = max((one.cells for one in judged), default=0)
    shared = [one for one in judged if one.cells >= PRESENT * most]
    return max(shared, key=lambda one: (one.auc, -one.step), default=None)
