"""What a sweep will cost: FLOPs counted without training, seconds from a few steps of one cell.

    seconds of a cell = its FLOPs / (FLOPs per second of the cell in the middle)

The speed is that of one thread of this machine now. Validation and gauges are not counted, and
small models reach fewer FLOPs per second than large ones, so the seconds are about right at best.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from leadline.errors import LeadlineError
from leadline.lab.cell import Cell, prepare, torch_threads, total_flops
from leadline.lab.grid import Sweep
from leadline.lab.trainer import Trainer, model_for

__all__ = ["CellCost", "estimate"]

_STEPS = 3
"""So many steps are timed, after one that is not timed."""


@dataclass(frozen=True)
class CellCost:
    """What one cell will cost; `reason` says why it cannot be built."""

    run: str
    steps: int
    flops: float
    seconds: float
    reason: str = ""


def estimate(
    what: Sweep, *, progress: Callable[[str, int, int], None] | None = None
) -> list[CellCost]:
    """The cost of every cell, in the order of the sweep."""
    cells = what.cells()
    flops: dict[str, float] = {}
    reasons: dict[str, str] = {}
    steps: dict[str, int] = {}
    for at, cell in enumerate(cells):
        if progress is not None:
            progress("counting FLOPs", at, len(cells))
        try:
            recipe, training, task = prepare(cell)
        except LeadlineError as error:
            reasons[cell.run] = str(error)
            continue
        one = total_flops(recipe, training, task, steps=1)
        most = training.steps if training.flops is None else int(training.flops // one)
        steps[cell.run] = min(training.steps, most)
        flops[cell.run] = one * steps[cell.run]
    countable = sorted(
        (cell for cell in cells if math.isfinite(flops.get(cell.run, math.nan))),
        key=lambda cell: flops[cell.run] / steps[cell.run],
    )
    speed = _speed(countable[len(countable) // 2]) if countable else math.nan
    return [
        CellCost(
            cell.run,
            steps.get(cell.run, 0),
            flops.get(cell.run, math.nan),
            flops.get(cell.run, math.nan) / speed,
            reasons.get(cell.run, ""),
        )
        for cell in cells
    ]


def _speed(cell: Cell) -> float:
    """FLOPs per second of a cell's training steps."""
    recipe, training, task = prepare(cell)
    with torch_threads(1):
        for count in (1, _STEPS):  # the first run fills caches, the second is timed
            short = training.but(
                steps=count, log=0, validate=0, gauges=0, examples=1, plateau=0, flops=None
            )
            model = model_for(recipe, task, seed=cell.seed)
            seconds = Trainer(model, task, short, seed=cell.seed).run().seconds
    return total_flops(recipe, training, task, steps=_STEPS) / seconds
