"""train(recipe) -> Trained: one run, its record and the trained model.

    trained = train(Recipe(depth=12, width=64), training=Training(steps=400, warmup=300))

With a path the record is a file that grows while the run goes on, and the checkpoint stands in
the folder FILE.work beside it. A run that was cut off, killed or paused goes on when it is asked
for again in the same way. Rows come into the record when a checkpoint holds them, so that a run
which goes on from there adds what is missing and nothing twice.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from leadline.errors import LabError, RecipeError, check_path, check_seed
from leadline.instruments.passes.provenance import model_facts, versions
from leadline.lab.tasks import Task, build_task
from leadline.lab.tasks.bytes import ByteTask
from leadline.lab.trainer import Beat, Ending, Trainer, model_for, refuse_misfit
from leadline.lab.training import Training
from leadline.lab.work_folder import working_folder
from leadline.parts import Recipe, Transformer
from leadline.parts.checkpoints import BYTES, check_free
from leadline.reading.watch.replay import replay
from leadline.record import Record

__all__ = ["Trained", "task_facts", "train"]


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
    save: str | Path | None = None,
    every: float = 10.0,
    beat: Callable[[Beat], None] | None = None,
) -> Trained:
    """Train a model of a recipe, or one of ours that is given, in place.

    `path` is the record's file; without one it lives in memory and there is no checkpoint.
    `save` is a folder for the trained model, checked before the training begins. `every` says
    after how many seconds a checkpoint is written, `beat` is called about four times a second
    and pauses the run by raising.
    """
    seed = check_seed(seed, error=LabError)
    if path is not None:
        path = check_path(path)
    if save is not None:
        save = check_path(save, name="save", error=RecipeError)
    training = training if isinstance(training, Training) else Training.from_json(training or {})
    task = build_task(training.task_choice)
    model = _model(recipe, task, seed)
    if save is not None:
        check_free(save, model.recipe)
    about = {
        "recipe": model.recipe.to_json(),
        "training": training.to_json(),
        "seed": seed,
        "task": task_facts(task, training.examples),
    }
    if path is None:
        trainer = Trainer(model, task, training, seed=seed)
        return _run(trainer, _start_record(trainer, about), save=save, beat=beat)
    place = path
    _refuse_other(place, about)
    with working_folder(place, what="run") as folder:
        run_folder = folder / "run"
        trainer = Trainer(model, task, training, seed=seed, folder=run_folder, every=every)
        if not place.exists():  # in one step, so that nobody ever opens half a record
            _start_record(trainer, about).save(place)
        trained = _run(trainer, Record.reopen(place), save=save, beat=beat)
        shutil.rmtree(run_folder, ignore_errors=True)
    return trained


def _run(
    trainer: Trainer,
    record: Record,
    *,
    save: str | Path | None,
    beat: Callable[[Beat], None] | None,
) -> Trained:
    """Train, and append to the record only rows that a checkpoint holds."""
    model, of_bytes = trainer.model, isinstance(trainer.task, ByteTask)
    assert isinstance(model, Transformer)

    def catch_up() -> None:
        record.append(trainer.readings[len(record) : trainer.saved_rows])

    def follow(now: Beat) -> None:
        catch_up()
        if beat is not None:
            beat(now)

    try:
        ending = trainer.run(beat=follow)
    except BaseException:
        catch_up()
        record.close()
        raise
    if len(record) > len(trainer.readings):
        raise LabError(
            f"The record holds {len(record)} rows and the run gave {len(trainer.readings)}: its "
            "checkpoint is gone. Remove the record to train anew."
        )
    if save is not None:
        model.save(save, tokenizer=BYTES if of_bytes else None)
    with record.together():
        record.append(trainer.readings[len(record) :])
        for warning in replay(trainer.readings, trainer.quantities):
            record.add_finding(warning)
        record.note("outcome", asdict(ending))
        record.note("seconds", round(ending.seconds, 3))
    return Trained(model.eval(), record, ending, of_bytes)


def _start_record(trainer: Trainer, about: Mapping[str, Any]) -> Record:
    """Begin a record that says what is about to be trained."""
    record = Record()
    for quantity in trainer.quantities:
        record.describe(quantity)
    facts = model_facts(trainer.model, None, "trained here")
    if trainer.half_route is not None:
        facts["half_precision"] = trainer.half_route
    record.note("model", facts)
    for key, value in about.items():
        record.note(key, value)
    record.note("precision", trainer.precision)
    record.note("versions", versions())
    record.note("time", time.strftime("%Y-%m-%dT%H:%M:%S%z"))
    return record


def task_facts(task: Task, examples: int) -> dict[str, Any]:
    """Return what a record says about a task: what it is, and what a stuck model would score."""
    entropies = task.entropies(examples)
    return {**task.facts(), "unigram": entropies.unigram, "bigram": entropies.bigram}


def _model(
    source: Recipe | Transformer | Mapping[str, Any] | None, task: Task, seed: int
) -> Transformer:
    if isinstance(source, Transformer):
        refuse_misfit(source, task)
        return source
    recipe = source if isinstance(source, Recipe) else Recipe.from_json(source or {})
    return model_for(recipe, task, seed=seed)


def _refuse_other(path: Path, about: Mapping[str, Any]) -> None:
    """Refuse a file that holds anything but the beginning of this run."""
    if not path.exists():
        return
    with Record.open(path) as record:
        provenance = record.provenance
    if "outcome" in provenance and "training" in provenance:
        raise LabError(
            f"{path} holds a run that has ended; choose another file, or remove it to train anew."
        )
    for key, value in about.items():
        if provenance.get(key) != _as_json(value):
            raise LabError(
                f"{path} does not hold the beginning of this run (its {key} differs); choose another "
                "file, or remove it."
            )


def _as_json(value: Any) -> Any:
    from leadline.record.provenance import decode, encode

    return decode(encode("", value))
