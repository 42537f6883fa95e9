"""One cell of a sweep: one training run, and what comes out of it.

`run_cell` gives rows and facts. What the cell itself does wrong is one of its facts: a recipe
that cannot be built is "impossible", a run that raises has "failed", each with its reason and
without rows. So every run in the record is complete.
"""

from __future__ import annotations

import functools
import json
import math
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from leadline.errors import LabError, LeadlineError, words_of
from leadline.lab.checkpoint import FILE
from leadline.lab.cost import flops_of
from leadline.lab.fields import known_fields, split_fields
from leadline.lab.tasks import Task, build_task
from leadline.lab.trainer import BEAT, Beat, Trainer, model_for
from leadline.lab.training import Training
from leadline.parts import Recipe, Transformer
from leadline.record import Quantity, Reading

if TYPE_CHECKING:
    from leadline.lab.engines.engine import Deaths, Orders

__all__ = [
    "FIELDS",
    "OF_THE_TASK",
    "Cell",
    "CellResult",
    "Label",
    "Paused",
    "facts_without_run",
    "prepare",
    "refuse_changed",
    "run_cell",
    "torch_threads",
    "total_flops",
]

Label = str | int | float

OF_THE_TASK = ("vocabulary", "context")
"""The fields of a recipe that follow from the task."""
FIELDS = tuple(name for name in known_fields() if name not in OF_THE_TASK)
"""What a cell may set: all other fields of a recipe and of a training."""


class Paused(Exception):
    """What a beat raises to pause a run; its checkpoint has been written when it arrives."""


@dataclass(frozen=True)
class Cell:
    """One run: its name, its place on the axes, its seed, and the fields that are not default."""

    run: str
    labels: Mapping[str, Label]
    seed: int
    fields: Mapping[str, Any]

    def recipe(self) -> Recipe:
        """The recipe; what cannot be built raises."""
        return Recipe.from_json(split_fields(self.fields)[0])

    def training(self) -> Training:
        """The training; what makes no sense raises."""
        return Training.from_json(split_fields(self.fields)[1])

    def perform(
        self, folder: Path | None, orders: Orders, tell: Callable[[Beat], None]
    ) -> CellResult:
        """Train it in a worker, unless its text has changed."""
        refuse_changed(self, orders.texts)
        return run_cell(self, folder=folder, threads=orders.threads, every=orders.every, beat=tell)

    def lost(self, deaths: Deaths, *, worker: str, how: str, memory: bool) -> CellResult:
        """Say that it has failed, because its workers died."""
        reason = deaths.reason(worker, how, memory=memory)
        facts = facts_without_run(self, "failed", reason, steps=deaths.place)
        return CellResult(self.run, (), {**facts, "attempts": deaths.total})


@dataclass(frozen=True)
class CellResult:
    """What a cell gave: its rows, what they are of, and facts such as status, loss and seconds."""

    run: str
    readings: tuple[Reading, ...]
    facts: Mapping[str, Any]
    quantities: tuple[Quantity, ...] = ()


def prepare(cell: Cell) -> tuple[Recipe, Training, Task]:
    """Return recipe, training and task of a cell, or raise if it cannot be built."""
    recipe, training = cell.recipe(), cell.training()
    return recipe, training, build_task(training.task)


def refuse_changed(cell: Cell, texts: Mapping[str, str]) -> None:
    """Refuse a cell whose text is not the one that the sweep began with, by its digest."""
    spelling = str(cell.training().task_choice)
    if spelling not in texts:
        return
    try:
        digest = build_task(spelling).facts().get("digest")
    except LeadlineError as error:
        raise LabError(f"The task {spelling} cannot be read any more: {error}") from error
    if digest != texts[spelling]:
        raise LabError(
            f"The text of the task {spelling} has changed while the sweep ran; the finished cells "
            "are kept. Bring it back to go on, or choose another file to begin anew."
        )


def run_cell(
    cell: Cell,
    *,
    folder: Path | None,
    threads: int = 1,
    every: float = 10.0,
    beat: Callable[[Beat], None] | None = None,
) -> CellResult:
    """Train one cell to its end, from its checkpoint where the folder has one.

    The first checkpoint comes with the first beat, whatever `every` says, so that a worker which
    is killed again and again gets on. What `every` asks for counts from then on.

    Raises `Paused` where a beat does, and `LabError` where the checkpoint cannot be written:
    then no other cell can write one either.
    """
    trainer: Trainer | None = None
    running = False
    with torch_threads(threads):
        try:
            recipe, training, task = prepare(cell)
            trainer = _trainer(cell, recipe, training, task, folder=folder, every=every)
            running = True
            ending = trainer.run(beat=_save_at_first_beat(trainer, every, beat))
        except Paused:
            raise
        except LabError as error:
            if running:
                raise
            return _without_rows(cell, "impossible", str(error))
        except LeadlineError as error:
            return _without_rows(cell, "failed" if running else "impossible", str(error))
        except Exception as error:
            step = trainer.step if trainer is not None else 0
            return _without_rows(cell, "failed", _reason(error, step), steps=step)
    facts = {
        **_place_on_axes(cell),
        "depth": recipe.depth,
        "task": str(training.task_choice),
        "status": ending.status,
        "reason": ending.reason,
        "steps": ending.steps,
        "loss": ending.loss if math.isfinite(ending.loss) else None,
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "flops": total_flops(recipe, training, task, steps=ending.steps),
        "seconds": round(ending.seconds, 3),
        "host": platform.node(),
        "attempts": 1,
    }
    return CellResult(cell.run, tuple(trainer.readings), facts, trainer.quantities)


def facts_without_run(cell: Cell, status: str, reason: str, *, steps: int = 0) -> dict[str, Any]:
    """The facts of a cell that has no rows: it could not be built, or it failed."""
    depth, task = cell.fields.get("depth"), cell.fields.get("task")
    return {
        **_place_on_axes(cell),
        "depth": depth if isinstance(depth, int) else Recipe().depth,
        "task": task if isinstance(task, str) else str(Training().task_choice),
        "status": status,
        "reason": reason,
        "steps": steps,
        "loss": None,
        "parameters": 0,
        "flops": 0.0,
        "seconds": 0.0,
        "host": platform.node(),
        "attempts": 1,
    }


def total_flops(recipe: Recipe, training: Training, task: Task, *, steps: int) -> float:
    """Return what so many steps cost; NaN if a part cannot be counted."""
    of_the_task = recipe.but(vocabulary=task.vocabulary, context=task.length)
    text = json.dumps(of_the_task.to_json(), sort_keys=True)
    return steps * _step_flops(text, training.batch, task.length)


@functools.lru_cache(maxsize=256)
def _step_flops(recipe: str, examples: int, length: int) -> float:
    try:
        return flops_of(Recipe.from_json(json.loads(recipe)), examples=examples, length=length)
    except Exception:  # some parts compute with numbers while they are built
        return math.nan


def _trainer(
    cell: Cell,
    recipe: Recipe,
    training: Training,
    task: Task,
    *,
    folder: Path | None,
    every: float,
) -> Trainer:
    """The trainer of a cell. A checkpoint that it cannot go on from is removed: it begins anew."""

    def build() -> Trainer:
        model: Transformer = model_for(recipe, task, seed=cell.seed)
        return Trainer(
            model, task, training, seed=cell.seed, run=cell.run, folder=folder, every=every
        )

    try:
        return build()
    except LabError:
        if folder is None or not (folder / FILE).exists():
            raise
        (folder / FILE).unlink()
        return build()


def _save_at_first_beat(
    trainer: Trainer, every: float, beat: Callable[[Beat], None] | None
) -> Callable[[Beat], None]:
    """Let the trainer save at its first beat: it saves before it calls `beat`."""
    trainer.every = min(every, BEAT)

    def tell(now: Beat) -> None:
        trainer.every = every
        if beat is not None:
            beat(now)

    return tell


def _without_rows(cell: Cell, status: str, reason: str, *, steps: int = 0) -> CellResult:
    return CellResult(cell.run, (), facts_without_run(cell, status, reason, steps=steps))


def _place_on_axes(cell: Cell) -> dict[str, Any]:
    return {"labels": dict(cell.labels), "seed": cell.seed}


def _reason(error: Exception, step: int) -> str:
    memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    if memory or (isinstance(error, RuntimeError) and "memory" in str(error).lower()):
        return (
            f"memory ran out at step {step}; choose a smaller width, depth or batch, "
            "or fewer workers"
        )
    return f"{type(error).__name__}: {words_of(error, first_line=True).rstrip('.')}"


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use so many threads inside, and as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
