"""Curves over training steps as Plotly figures, plain dictionaries like those over depth.

A training run: one chart of its losses, with the unigram and the bigram entropy of the task as
lines across, and one chart for every other quantity. Several records: their curves laid over each
other, one colour each. A sweep: the validation loss of every row of its map, one colour per depth
and one line per seed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leadline.reading.compare.training_curves import task_entropies
from leadline.reading.map.text import depth_text
from leadline.reading.show.layout import layout_over_depth
from leadline.reading.show.palette import record_colour
from leadline.reading.show.traces import plotly_text
from leadline.reading.show.wording import number
from leadline.record import Quantity
from leadline.record.run.curve import curves_of, is_loss, run_quantities
from leadline.record.run.ending import ending_of
from leadline.record.run.training import TRAIN_LOSS, VALIDATION_LOSS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from leadline.reading.map.places import MapRow
    from leadline.reading.map.trainability import Trainability
    from leadline.record import Record
    from leadline.record.run.curve import Curve

__all__ = ["CurveChart", "CurveKey", "draw_row_charts", "draw_training_charts"]

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


@dataclass(frozen=True, slots=True)
class CurveKey:
    """One row of the key of a chart: what it is called, where it goes, how its line looks."""

    label: str
    detail: str
    colour: str
    dash: str = "solid"
    width: float = 2.0


@dataclass(frozen=True, slots=True)
class CurveChart:
    """A figure over steps and what the page says beside it."""

    key: str
    title: str
    quantity: Quantity
    rows: tuple[CurveKey, ...]
    figure: dict[str, Any]
    gaps: tuple[str, ...]

    @property
    def spoken(self) -> str:
        """The chart in words."""
        lines = "; ".join(f"{row.label}: {row.detail}" for row in self.rows)
        return f"{self.title} over training steps. {lines}"


def draw_training_charts(records: Sequence[Record], names: Sequence[str]) -> list[CurveChart]:
    """Draw the curves of the records that hold one run: the losses, then all else."""
    known: dict[str, Quantity] = {}
    single = [at for at, record in enumerate(records) if len(record.runs) == 1]
    for at in single:
        known |= {name: q for name, q in run_quantities(records[at]).items() if name not in known}
    groups = [(_LOSS, [name for name in _LOSSES if name in known])]
    groups += [(quantity, [name]) for name, quantity in known.items() if name not in _LOSSES]
    charts: list[CurveChart] = []
    for quantity, wanted in groups:
        if not wanted:
            continue
        pen = _CurvePen(f"training-{len(charts) + 1}", quantity.title, quantity)
        for at in single:
            _draw_run(records[at], names[at] if len(names) > 1 else "", at, wanted, pen)
        if quantity is _LOSS:
            for kind, value in _entropies(records[at] for at in single):
                pen.across(f"{kind} entropy", value, dash="dash" if kind == "unigram" else "dot")
        charts.append(pen.finish())
    return charts


def draw_row_charts(record: Record, training_map: Trainability, *, key: str) -> list[CurveChart]:
    """Draw the validation loss over steps for every row of the map of a sweep."""
    curves: dict[str, Curve] = {}
    if VALIDATION_LOSS.name in record.quantities:
        curves = {curve.run: curve for curve in curves_of(record, VALIDATION_LOSS.name)}
    charts: list[CurveChart] = []
    for row in training_map.rows:
        pen = _CurvePen(f"{key}-{len(charts) + 1}", row.name, VALIDATION_LOSS)
        _draw_places(row, curves, pen, axis=training_map.axis)
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
        for curve in curves_of(record, quantity):
            word = {TRAIN_LOSS.name: "training", VALIDATION_LOSS.name: "validation"}
            label = ", ".join(
                part for part in (name, word.get(quantity, "") if several else "") if part
            )
            faint = several and quantity == TRAIN_LOSS.name
            colour = record_colour(at)
            has_diverged = is_loss(quantity) and diverged
            row = CurveKey(
                label or "this run",
                f"{number(curve.first)} → {number(curve.last) if not has_diverged else 'diverged'}",
                _GREY if faint and not name else colour,
                dash="dot" if faint else "solid",
                width=1.5 if faint else 2.0,
            )
            pen.curve(curve, pen.add(row), hover=label)


def _draw_places(row: MapRow, curves: Mapping[str, Curve], pen: _CurvePen, *, axis: str) -> None:
    for at, place in enumerate(row.places):
        cells = [] if place is None else [c for c in place.cells if c.run in curves]
        if place is None or not cells:
            continue
        ends = ", ".join(
            "diverged" if cell.status == "diverged" else number(curves[cell.run].last)
            for cell in cells
        )
        key = CurveKey(f"{axis} {depth_text(place.depth)}", f"→ {ends}", record_colour(at))
        series = pen.add(key)
        for cell in cells:
            pen.curve(curves[cell.run], series, hover=f"{key.label}, seed {cell.seed}")


def _entropies(records: Iterable[Record]) -> list[tuple[str, float]]:
    """The entropies of the tasks, each number once."""
    pairs = [pair for record in records for pair in task_entropies(record).items()]
    return list(dict.fromkeys(pairs))


class _CurvePen:
    """Collects the rows of the key and the traces of one chart."""

    def __init__(self, key: str, title: str, quantity: Quantity) -> None:
        self._key, self._title, self._quantity = key, title, quantity
        self.rows: list[CurveKey] = []
        self._traces: list[dict[str, Any]] = []
        self._gaps: list[str] = []
        self._last = 1

    def add(self, row: CurveKey) -> int:
        """Add a row of the key and return its number."""
        self.rows.append(row)
        return len(self.rows) - 1

    def curve(self, curve: Curve, series: int, *, hover: str) -> None:
        """Draw a curve; where it is not finite it has a gap, with a cross on the upper edge."""
        self._last = max(self._last, curve.steps[-1])
        values = [float(value) for value in curve.values]
        finite = [math.isfinite(value) for value in values]
        shown = [value if fine else None for value, fine in zip(values, finite, strict=True)]
        self._trace(series, list(curve.steps), shown, values, hover=hover)
        gaps = [at for at, fine in enumerate(finite) if not fine]
        if gaps:
            steps = [curve.steps[at] for at in gaps]
            self._trace(series, steps, [0.97] * len(gaps), [values[at] for at in gaps], hover=hover)
            crosses = self._traces[-1]
            crosses |= {"mode": "markers", "yaxis": "y2", "cliponaxis": False}
            crosses["marker"] |= {"symbol": "x", "size": 9}
            crosses["meta"]["edge"] = True
            self._gaps.append(f"{hover or 'this run'}: from step {steps[0]} on.")

    def across(self, label: str, value: float, *, dash: str) -> None:
        """Draw a line across the whole chart."""
        series = self.add(CurveKey(label, number(value), _BLACK, dash=dash, width=1.5))
        self._trace(series, [0, self._last], [value, value], [value, value], hover=label)

    def _trace(
        self,
        series: int,
        steps: list[int],
        heights: Sequence[float | None],
        values: Sequence[float],
        *,
        hover: str,
    ) -> None:
        row = self.rows[series]
        hover_text = plotly_text(hover).replace("%{", "%\u2060{")
        template = f"<b>step %{{customdata[0]}}</b><br>{hover_text}: <b>%{{customdata[1]}}</b>"
        self._traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": plotly_text(hover),
                "x": steps,
                "y": list(heights),
                "xaxis": "x",
                "yaxis": "y",
                "connectgaps": False,
                "customdata": [
                    [str(step), number(value, digits=4)]
                    for step, value in zip(steps, values, strict=True)
                ],
                "hovertemplate": f"{template}<extra></extra>",
                "line": {"color": row.colour, "dash": row.dash, "width": row.width},
                "marker": {"color": row.colour, "size": 6},
                "visible": True,
                "meta": {
                    "series": series,
                    "statistic": "value",
                    "depth": 1,
                    "heading": hover or row.label,
                },
            }
        )

    def finish(self) -> CurveChart:
        """Return the chart."""
        layout = layout_over_depth(self._quantity, ("",), [])
        layout["xaxis"] |= {
            "title": {"text": "step", "standoff": 6},
            "range": [-0.02 * self._last, 1.02 * self._last],
        }
        del layout["xaxis"]["dtick"]
        return CurveChart(
            key=self._key,
            title=self._title,
            quantity=self._quantity,
            rows=tuple(self.rows),
            figure={"data": self._traces, "layout": layout},
            gaps=tuple(self._gaps),
        )
