"""What a sweep will cost: FLOPs counted without training, seconds from a few steps of one cell.

    seconds of a cell = its FLOPs / (FLOPs per second of the cell in the middle)

The speed is that of one thread of this machine now. Validation and gauges are not counted, and
small models reach fewer FLOPs per second than large ones, so the seconds are about right at best.

    seconds of a sweep = the longest of the workers' sums

where the longest cell that is left always goes to the worker that is free first (Graham 1969,
"Bounds on multiprocessing timing anomalies": at most a third longer than the best order).
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from leadline.errors import LabError, LeadlineError, Progress
from leadline.lab.cell import Cell, prepare, torch_threads, total_flops
from leadline.lab.cost import affordable_steps
from leadline.lab.grid import Sweep
from leadline.lab.trainer import Trainer, model_for

__all__ = ["CellCost", "estimate", "makespan"]

_STEPS = 3
"""So many steps are timed, after one that fills the caches."""


@dataclass(frozen=True)
class CellCost:
    """What one cell will cost; `reason` says why it cannot be built."""

    run: str
    steps: int
    flops: float
    seconds: float
    reason: str = ""


@dataclass(frozen=True)
class _Count:
    """The steps of a place, what one of them costs, and the most seconds that it may take."""

    steps: int = 0
    one: float = math.nan
    most: float = math.inf
    reason: str = ""


def estimate(what: Sweep, *, progress: Progress | None = None) -> list[CellCost]:
    """The cost of every cell, in the order of the sweep."""
    cells = what.cells()
    counts: dict[str, _Count] = {}  # the seeds of a place cost the same
    for at, cell in enumerate(cells):
        if progress is not None:
            progress("counting FLOPs", at, len(cells))
        if _fields(cell) not in counts:
            counts[_fields(cell)] = _count(cell)
    countable = sorted(
        (cell for cell in cells if math.isfinite(counts[_fields(cell)].one)),
        key=lambda cell: counts[_fields(cell)].one,
    )
    speed = _speed(countable[len(countable) // 2]) if countable else math.nan
    return [_cost(cell.run, counts[_fields(cell)], speed) for cell in cells]


def makespan(seconds: Iterable[float], workers: int) -> float:
    """How long so many workers take for cells of these lengths, the longest first."""
    ends = [0.0] * workers
    for length in sorted(seconds, reverse=True):
        heapq.heapreplace(ends, ends[0] + length)
    return max(ends)


def _fields(cell: Cell) -> str:
    return json.dumps(dict(cell.fields), sort_keys=True)


def _count(cell: Cell) -> _Count:
    try:
        recipe, training, task = prepare(cell)
        _build(cell)
        one = total_flops(recipe, training, task, steps=1)
        if training.flops is not None and math.isnan(one):
            raise LabError("A budget of FLOPs needs parts that can be counted; give steps instead.")
        steps = affordable_steps(training.steps, cost=one, flops=training.flops)
    except LeadlineError as error:
        return _Count(reason=str(error))
    return _Count(steps, one, math.inf if training.seconds is None else training.seconds)


def _build(cell: Cell) -> None:
    """Build the model without numbers, to refuse one that the task does not fit."""
    recipe, _, task = prepare(cell)
    try:
        with torch.device("meta"):
            model_for(recipe, task, seed=cell.seed)
    except LeadlineError:
        raise
    except Exception:  # it needs numbers; the run itself will tell
        return


def _cost(run: str, count: _Count, speed: float) -> CellCost:
    flops = count.one * count.steps
    seconds = flops / speed
    return CellCost(
        run,
        count.steps,
        flops,
        seconds if math.isnan(seconds) else min(seconds, count.most),
        count.reason,
    )


def _speed(cell: Cell) -> float:
    """FLOPs per second of a cell's training steps."""
    recipe, training, task = prepare(cell)
    with torch_threads(1):
        for count in (1, _STEPS):  # the first run fills caches, the second is timed
            short = training.but(
                steps=count,
                log=0,
                validate=0,
                gauges=0,
                examples=1,
                plateau=0,
                flops=None,
                seconds=None,
            )
            model = model_for(recipe, task, seed=cell.seed)
            ending = Trainer(model, task, short, seed=cell.seed).run()
    return total_flops(recipe, training, task, steps=ending.steps) / ending.seconds
