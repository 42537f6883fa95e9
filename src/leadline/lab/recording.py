"""train(recipe) -> Trained: one run, its record and the trained model.

    trained = train(Recipe(depth=12, width=64), training=Training(steps=400, warmup=300))

With a path the record is a file that grows while the run goes on, and the checkpoint stands in
the folder FILE.work beside it. A run that was cut off, killed or paused goes on when it is asked
for again in the same way: rows that stand in the record already are not written twice, because a
run gives the same rows in the same order every time.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from leadline.errors import LabError
from leadline.lab.tasks import Task, build_task
from leadline.lab.tasks._bytes import ByteTask
from leadline.lab.trainer import Beat, Ending, Trainer, model_for, refuse_misfit
from leadline.lab.training import Training
from leadline.measurement import model_facts, versions
from leadline.parts import Recipe, Transformer
from leadline.record import Record

__all__ = ["Trained", "task_facts", "train", "work_folder"]

KEEP_UP = 1.0
"""Seconds between two writes to the record, at least."""


@dataclass(frozen=True)
class Trained:
    """A trained model, the record of the run, and why it ended."""

    model: Transformer
    record: Record
    ending: Ending
    of_bytes: bool
    """Whether the tokens are bytes of text, so that the model can read any text."""


def train(
    recipe: Recipe | Transformer | Mapping[str, Any] | None = None,
    path: str | Path | None = None,
    *,
    training: Training | Mapping[str, Any] | None = None,
    seed: int = 0,
    every: float = 10.0,
    beat: Callable[[Beat], None] | None = None,
) -> Trained:
    """Train a model of a recipe, or one of ours that is given, in place.

    `path` is the record's file; without one it lives in memory and there is no checkpoint.
    `every` says after how many seconds a checkpoint is written, `beat` is called about four times
    a second and pauses the run by raising.
    """
    training = training if isinstance(training, Training) else Training.from_json(training or {})
    task = build_task(training.task_choice)
    model = _model(recipe, task, seed)
    about = {
        "recipe": model.recipe.to_json(),
        "training": training.to_json(),
        "seed": seed,
        "task": task_facts(task, training.examples),
    }
    record = Record() if path is None else _record(Path(path), about)
    folder = None if path is None else work_folder(Path(path))
    trainer = Trainer(model, task, training, seed=seed, folder=folder, every=every)
    with record.together():
        for quantity in trainer.quantities:
            record.describe(quantity)
        record.note("model", model_facts(model, None, "trained here", compiled=False))
        for key, value in about.items():
            record.note(key, value)
        record.note("precision", trainer.precision)
        record.note("versions", versions())
        record.note("time", time.strftime("%Y-%m-%dT%H:%M:%S%z"))
    last = time.perf_counter()

    def keep_up(now: Beat) -> None:
        nonlocal last
        if time.perf_counter() - last >= KEEP_UP:
            record.append(trainer.readings[len(record) :])
            last = time.perf_counter()
        if beat is not None:
            beat(now)

    ending = trainer.run(beat=keep_up)
    with record.together():
        record.append(trainer.readings[len(record) :])
        record.note("outcome", asdict(ending))
        record.note("seconds", round(ending.seconds, 3))
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    return Trained(model.eval(), record, ending, isinstance(task, ByteTask))


def task_facts(task: Task, examples: int) -> dict[str, Any]:
    """What a record says about a task: what it is, and what a stuck model would score."""
    found = task.entropies(examples)
    return {**task.facts(), "unigram": found.unigram, "bigram": found.bigram}


def work_folder(path: Path) -> Path:
    """Where the checkpoints of a record that grows are."""
    return path.with_name(f"{path.name}.work")


def _model(
    given: Recipe | Transformer | Mapping[str, Any] | None, task: Task, seed: int
) -> Transformer:
    if isinstance(given, Transformer):
        refuse_misfit(given, task)
        return given
    recipe = given if isinstance(given, Recipe) else Recipe.from_json(given or {})
    return model_for(recipe, task, seed=seed)


def _record(path: Path, about: Mapping[str, Any]) -> Record:
    """A new record, or the one of the same run that was cut off."""
    if not path.exists():
        return Record.create(path)
    with Record.open(path) as found:
        known = found.provenance
    if "outcome" in known and "training" in known:
        raise LabError(
            f"{path} holds a run that has ended; choose another file, or remove it to train anew."
        )
    for key, value in about.items():
        if known.get(key) != _as_json(value):
            raise LabError(
                f"{path} holds something else than this run (its {key} differs); choose another "
                "file, or remove it."
            )
    return Record.reopen(path)


def _as_json(value: Any) -> Any:
    from leadline.record.provenance import decode, encode

    return decode(encode("", value))
