"""A run that is being written, as events: how it is doing, its losses, its maps, its warnings.

    {"event": "state", "state": "running", "answer": [...], "step": 120, "detail": "..."}
    {"event": "loss", "series": [{"quantity", "label", "unit", "steps", "values"}]}
    {"event": "maps", "step": 120, "maps": [{"quantity", "label", "layers", "steps", "values", ...}]}
    {"event": "findings", "findings": [...], "earlier": [...]}
    {"event": "map", "map": {...}}                 # of a sweep, whenever a cell has ended
    {"event": "end", "reason": "..."}

Every event of a kind replaces the one before it. A value that is not finite is null, and where nothing
was read yet `read` says so. Of a record that is finished they come once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline.web.server.worker import JobControl

if TYPE_CHECKING:
    from leadline.reading.watch.heat import LayerSeries
    from leadline.reading.watch.history import Series
    from leadline.reading.watch.sight import FollowedRun, RunSight

__all__ = ["run_events"]

COLUMNS = 80
"""Columns of a map: more than a page of 390 pixels shows one by one."""
ROWS = 96
POINTS = 600
"""Points of a loss curve."""
PAUSE = 1.0
"""Seconds between two looks at the file."""
DIGITS = 5
RUN_LINES = ("train.loss", "validation.loss", "train.rate")


def run_events(path: str, *, control: JobControl, pause: float = PAUSE) -> Iterator[dict[str, Any]]:
    """Yield what is known of a run or a sweep whenever it has changed, until it has ended."""
    from leadline.errors import RecordError
    from leadline.reading.watch.sight import FollowedRun

    file = Path(path)
    if _is_sweep(file):
        yield from _sweep_events(file, control, pause)
        return
    run = FollowedRun(file)
    try:
        yield from _training_events(run, control, pause)
    except RecordError as error:
        yield {"event": "error", "reason": str(error), "knob": None}


def _training_events(
    run: FollowedRun, control: JobControl, pause: float
) -> Iterator[dict[str, Any]]:
    known: dict[str, Any] = {}
    while True:
        sight = run.look()
        for event in _events_of(sight, fresh=sight.history.step != known.get("step")):
            word = event["event"]
            if known.get(word) != event:
                known[word] = event
                yield event
        known["step"] = sight.history.step
        if sight.ended:
            yield {"event": "end", "reason": "The run has ended."}
            return
        _wait(control, pause)


def _events_of(sight: RunSight, *, fresh: bool) -> Iterator[dict[str, Any]]:
    from leadline.reading.diagnosis.words import finding_json
    from leadline.reading.watch.heat import layer_series
    from leadline.reading.watch.state_words import answer_sentence, detail_sentence

    yield {
        "event": "state",
        "state": sight.state,
        "answer": [answer_sentence(sight)],
        "detail": detail_sentence(sight),
        "step": sight.history.step,
    }
    yield {
        "event": "findings",
        "findings": [
            finding_json(one) | {"step": one.details.get("step"), "since": one.details.get("since")}
            for one in sight.findings
        ],
        "earlier": [finding_json(one) | {"step": one.details.get("step")} for one in sight.earlier],
    }
    if not fresh:
        return
    lines = [sight.history.of_run(name) for name in RUN_LINES]
    quantities = sight.history.quantities
    yield {
        "event": "loss",
        "series": [
            _line(one, quantities[one.quantity].title, quantities[one.quantity].unit)
            for one in lines
            if one is not None
        ],
    }
    yield {
        "event": "maps",
        "step": sight.history.step,
        "maps": [_map(group) for group in layer_series(sight.history)],
    }


def _line(series: Series, label: str, unit: str) -> dict[str, Any]:
    """A curve over steps, thinned to some hundred points; the last one always stands."""
    steps, values = series.steps.tolist(), series.values.tolist()
    each = max(1, math.ceil(len(steps) / POINTS))
    chosen = sorted({*range(0, len(steps), each), len(steps) - 1})
    return {
        "quantity": series.quantity,
        "label": label,
        "unit": unit,
        "steps": [steps[at] for at in chosen],
        "values": [_number(values[at]) for at in chosen],
    }


def _map(group: LayerSeries) -> dict[str, Any]:
    from leadline.reading.watch.heat import heat_map, merge_rows

    heat = merge_rows(heat_map(group, columns=COLUMNS), ROWS)
    quantity = group.quantity
    return {
        "quantity": quantity.name,
        "address": str(group.address),
        "label": group.title,
        "symbol": quantity.symbol,
        "unit": quantity.unit,
        "scale": quantity.scale,
        "layers": list(heat.labels),
        "steps": [_number(edge) for edge in heat.edges.tolist()],
        "values": [[_number(value) for value in row] for row in heat.values.tolist()],
        "read": heat.known.tolist(),
    }


def _is_sweep(path: Path) -> bool:
    from leadline.errors import LeadlineError
    from leadline.reading.map.cells import is_sweep
    from leadline.record import Record

    try:
        with Record.open(path) as record:
            return is_sweep(record)
    except LeadlineError:  # not there yet, or damaged: said by those who follow it
        return False


def _sweep_events(path: Path, control: JobControl, pause: float) -> Iterator[dict[str, Any]]:
    from leadline.reading.map.text import map_answer
    from leadline.reading.map.trainability import trainability
    from leadline.record import Record
    from leadline.record.file.writer import writer_of

    before: dict[str, Any] = {}
    while True:
        writer = writer_of(path)
        with Record.open(path) as record:
            whole = trainability(record)
        event = {"event": "map", "map": whole.to_json(), "answer": map_answer(whole)}
        if event != before:
            before = event
            yield event
        if writer is None or writer.lives is False:
            left = f" with {whole.unrun} cells to run" if whole.unrun else ""
            yield {"event": "end", "reason": f"Nobody writes this sweep any more{left}."}
            return
        _wait(control, pause)


def _wait(control: JobControl, pause: float) -> None:
    control.pass_by()
    time.sleep(pause)


def _number(value: float) -> float | None:
    if not math.isfinite(value):
        return None
    return float(f"{value:.{DIGITS}g}")
