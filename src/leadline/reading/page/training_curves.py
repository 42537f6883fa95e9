"""Charts over training steps.

A training run: one chart of its losses, with the unigram and the bigram entropy of the task as
lines across, and one chart for every other quantity. Several records: their curves laid over each
other, one colour each. A sweep: the validation loss of every row of its map, one colour per depth
and one line per seed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline.reading.compare.training_curves import task_entropies
from leadline.reading.map.text import depth_text
from leadline.reading.show.chart import MOST_POINTS, Chart, ChartLine, KeyRow
from leadline.reading.show.palette import record_colour
from leadline.reading.show.wording import number
from leadline.record import Quantity
from leadline.record.run.curve import (
    curves_of,
    is_loss,
    joined_curve,
    run_quantities,
    thin_curve,
)
from leadline.record.run.ending import ending_of
from leadline.record.run.training import TRAIN_LOSS, VALIDATION_LOSS
from leadline.record.run.watching import is_watched

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from leadline.reading.map.places import MapRow
    from leadline.reading.map.trainability import Trainability
    from leadline.record import Record
    from leadline.record.run.curve import Curve

__all__ = ["draw_row_charts", "draw_training_charts", "run_curves"]

_LOSSES = (TRAIN_LOSS.name, VALIDATION_LOSS.name)
_GREY, _BLACK = record_colour(6), record_colour(5)
_LOSS = Quantity(
    "loss",
    "Loss",
    "L",
    "mean cross-entropy of the training batches, and of the validation examples",
    unit="nats",
    high=VALIDATION_LOSS.high,
    low=VALIDATION_LOSS.low,
)


def draw_training_charts(records: Sequence[Record], names: Sequence[str]) -> list[Chart]:
    """Draw the curves of the records that hold one run: the losses, then all else."""
    known: dict[str, Quantity] = {}
    single = [at for at, one in enumerate(records) if len(one.runs) == 1 or is_watched(one)]
    for at in single:
        known |= {name: q for name, q in run_quantities(records[at]).items() if name not in known}
    groups = [(_LOSS, [name for name in _LOSSES if name in known])]
    groups += [(quantity, [name]) for name, quantity in known.items() if name not in _LOSSES]
    charts: list[Chart] = []
    for quantity, wanted in groups:
        if not wanted:
            continue
        if all(is_watched(records[at]) for at in single):  # its loss may be any, in any unit
            quantity = known[wanted[0]]  # noqa: PLW2901
        pen = _CurvePen(f"training-{len(charts) + 1}", quantity.title, quantity)
        for at in single:
            _draw_run(records[at], names[at] if len(names) > 1 else "", at, wanted, pen)
        if (
            not pen.rows
        ):  # a gauge of which nothing was read, such as log Z where no logits are seen
            continue
        if quantity is _LOSS:
            for kind, value in _entropies(records[at] for at in single):
                pen.across(f"{kind} entropy", value, dash="dash" if kind == "unigram" else "dot")
        charts.append(pen.finish())
    return charts


def run_curves(record: Record, quantity: str) -> list[Curve]:
    """Return the curves of a quantity; of a run that was cut off and went on, one."""
    if not is_watched(record):
        return curves_of(record, quantity)
    joined = joined_curve(record, quantity)
    return [] if joined is None else [joined]


def draw_row_charts(record: Record, training_map: Trainability, *, at: int) -> list[Chart]:
    """Draw the validation loss over steps for every row of the map of a sweep, record number `at`."""
    curves: dict[str, Curve] = {}
    if VALIDATION_LOSS.name in record.quantities:
        curves = {curve.run: curve for curve in curves_of(record, VALIDATION_LOSS.name)}
    charts: list[Chart] = []
    for row in training_map.rows:
        pen = _CurvePen(f"map-{at + 1}-{len(charts) + 1}", row.name, VALIDATION_LOSS)
        _draw_places(row, curves, pen, axis=training_map.axis, record=at)
        if not pen.rows:
            continue
        for task in row.tasks:
            whose = f" of {task}" if len(row.tasks) > 1 else ""
            unigram = training_map.entropies[task].unigram
            pen.across(f"unigram entropy{whose}", unigram, dash="dash")
            pen.across(f"trains below{whose}", unigram - training_map.margin, dash="dot")
        charts.append(pen.finish())
    return charts


def _draw_run(record: Record, name: str, at: int, wanted: Sequence[str], pen: _CurvePen) -> None:
    several = len(wanted) > 1
    ending = ending_of(record)
    diverged = ending is not None and ending.diverged
    for quantity in wanted:
        if quantity not in record.quantities:
            continue
        for curve in run_curves(record, quantity):
            word = {TRAIN_LOSS.name: "training", VALIDATION_LOSS.name: "validation"}
            label = ", ".join(
                part for part in (name, word.get(quantity, "") if several else "") if part
            )
            faint = several and quantity == TRAIN_LOSS.name
            colour = record_colour(at)
            has_diverged = is_loss(quantity) and diverged
            row = KeyRow(
                label or "this run",
                (f"{number(curve.first)} → {'diverged' if has_diverged else number(curve.last)}",),
                _GREY if faint and not name else colour,
                dash="dot" if faint else "solid",
                width=1.5 if faint else 2.0,
            )
            pen.curve(curve, pen.add(row), heading=row.label, record=at)


def _draw_places(
    row: MapRow, curves: Mapping[str, Curve], pen: _CurvePen, *, axis: str, record: int
) -> None:
    for at, place in enumerate(row.places):
        cells = [] if place is None else [c for c in place.cells if c.run in curves]
        if place is None or not cells:
            continue
        ends = ", ".join(
            "diverged" if cell.status == "diverged" else number(curves[cell.run].last)
            for cell in cells
        )
        key = KeyRow(f"{axis} {depth_text(place.depth)}", (f"→ {ends}",), record_colour(at))
        series = pen.add(key)
        for cell in cells:
            heading = f"{key.label}, seed {cell.seed}"
            pen.curve(curves[cell.run], series, heading=heading, record=record)


def _entropies(records: Iterable[Record]) -> list[tuple[str, float]]:
    """The entropies of the tasks, each number once."""
    pairs = [pair for record in records for pair in task_entropies(record).items()]
    return list(dict.fromkeys(pairs))


class _CurvePen:
    """Collects the rows of the key and the lines of one chart."""

    def __init__(self, key: str, title: str, quantity: Quantity) -> None:
        self._key, self._title, self._quantity = key, title, quantity
        self.rows: list[KeyRow] = []
        self._lines: list[ChartLine] = []
        self._thinned: list[str] = []

    def add(self, row: KeyRow) -> int:
        """Add a row of the key and return its number."""
        self.rows.append(row)
        return len(self.rows) - 1

    def curve(self, curve: Curve, series: int, *, heading: str, record: int) -> None:
        """Draw a curve of the record of this number."""
        drawn = thin_curve(curve, MOST_POINTS)
        if len(drawn) < len(curve):
            self._thinned.append(
                f"{heading}: {len(drawn):,} of {len(curve):,} values are drawn, the lowest and the "
                "highest of every stretch."
            )
        self._lines.append(
            ChartLine(
                series=series,
                heading=heading,
                x=drawn.steps,
                values=tuple(map(float, drawn.values)),
                address=(record, "curves", (curve.quantity, curve.run, curve.seed)),
            )
        )

    def across(self, label: str, value: float, *, dash: str) -> None:
        """Draw a line across the whole chart."""
        last = max((line.x[-1] for line in self._lines), default=1)
        series = self.add(KeyRow(label, (number(value),), _BLACK, dash=dash, width=1.5))
        self._lines.append(ChartLine(series, label, (0, last), (value, value)))

    def finish(self) -> Chart:
        """Return the chart."""
        quantity = self._quantity
        spoken = "; ".join(f"{row.label}: {row.details[0]}" for row in self.rows)
        return Chart(
            key=self._key,
            title=self._title,
            symbol=quantity.symbol,
            scale=quantity.scale,
            rows=tuple(self.rows),
            lines=tuple(self._lines),
            spoken=f"{self._title} over training steps. {spoken}",
            unit=quantity.unit,
            across="step",
            cut=" ".join(self._thinned),
            gaps=tuple(
                f"{line.heading}: from step {line.gaps[0]} on." for line in self._lines if line.gaps
            ),
            meaning=(("High", quantity.high), ("Low", quantity.low)),
            formulas=(("Formula", quantity.formula), ("Source", quantity.source)),
        )
