"""How a model is trained: task, length, batch, optimizer, learning rate, what is watched.

    learning rate of update s (from 1):   rate * min(1, s / warmup) * shape(s)
    shape   constant   1
            cosine     floor + (1 - floor) (1 + cos(pi p)) / 2,   p = (s - warmup) / (steps - warmup)
                       from 0 (during warm-up) to 1

AdamW (Loshchilov and Hutter 2017, arXiv 1711.05101) with betas 0.9 and 0.999, eps 1e-8; `decay`
holds for matrices and tables, not for biases, norms and gains.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from leadline.catalog import Choice
from leadline.errors import LabError, check_count, nearest_names, shown
from leadline.lab.tasks import TASKS

__all__ = ["FLOOR", "PRECISIONS", "SCHEDULES", "Training", "learning_rate"]

SCHEDULES = ("constant", "cosine")
PRECISIONS = ("float32", "bfloat16", "auto")
LARGEST = sys.float_info.max
FLOOR = 0.1
"""The share of the learning rate that is left at the end of the cosine."""

Spelling = str | Mapping[str, Any] | Choice


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a model is trained: task, length, batch, optimizer, and how often numbers are read.

    `batch` examples are one update, taken in `accumulate` pieces. `log`, `validate` and `gauges`
    say after how many updates the training loss, the validation loss (of `examples` examples)
    and the gauges are read; 0: never, and the validation loss at the end alone. `layers` keeps
    the readings of every layer at the gauges. A run ends after `steps` updates, or earlier:
    after `seconds` of training, where `flops` are spent, or after `plateau` updates in which
    the mean training loss of ten did not fall below the lowest by `least` nats.
    """

    task: Spelling = "stdlib"
    steps: int = 200
    batch: int = 16
    accumulate: int = 1
    rate: float = 1e-3
    warmup: int = 0
    schedule: str = "constant"
    decay: float = 0.01
    clip: float | None = None
    precision: str = "float32"
    log: int = 10
    validate: int = 100
    examples: int = 128
    gauges: int = 50
    layers: bool = False
    seconds: float | None = None
    flops: float | None = None
    plateau: int = 0
    least: float = 0.01

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "accumulate", "examples"):
            self._check_count(name, least=1)
        for name in ("warmup", "log", "validate", "gauges", "plateau"):
            self._check_count(name, least=0)
        _number("rate", self.rate, above=0.0)
        _number("decay", self.decay)
        _number("least", self.least)
        for name in ("clip", "seconds", "flops"):
            if getattr(self, name) is not None:
                _number(name, getattr(self, name), above=0.0)
        _one_of("schedule", self.schedule, SCHEDULES)
        _one_of("precision", self.precision, PRECISIONS)
        if not isinstance(self.layers, bool):
            raise LabError(f"layers is true or false in a training, not {self.layers!r}.")
        if self.batch % self.accumulate:
            raise LabError(
                f"A batch of {self.batch} examples cannot be taken in {self.accumulate} equal "
                "pieces; choose a batch that can."
            )
        object.__setattr__(self, "task", TASKS.check(self.task))

    def _check_count(self, name: str, *, least: int) -> None:
        """Keep a plain int, also of a numpy integer: a training is written as JSON."""
        number = check_count(getattr(self, name), name, least=least, error=LabError)
        object.__setattr__(self, name, number)

    @property
    def task_choice(self) -> Choice:
        """The task with its options."""
        return Choice.parse(self.task)

    def but(self, **changes: Any) -> Training:
        """Return the training with some fields changed."""
        _refuse_unknown(changes)
        return dataclasses.replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """The training as JSON."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return fields | {"task": self.task_choice.to_json()}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Training:
        """Read what `to_json` wrote, or some fields of it."""
        _refuse_unknown(found)
        return cls(**found)

    @classmethod
    def fields(cls) -> tuple[str, ...]:
        """The names of the fields."""
        return tuple(field.name for field in dataclasses.fields(cls))


def learning_rate(training: Training, update: int, *, steps: int | None = None) -> float:
    """The learning rate of an update, counted from 1; `steps` is where the cosine ends."""
    last = training.steps if steps is None else steps
    warm = min(1.0, update / training.warmup) if training.warmup else 1.0
    if training.schedule == "constant":
        return training.rate * warm
    progress = (update - training.warmup) / max(1, last - training.warmup)
    shape = (1.0 + math.cos(math.pi * min(1.0, max(0.0, progress)))) / 2.0
    return training.rate * warm * (FLOOR + (1.0 - FLOOR) * shape)


def _refuse_unknown(fields: Mapping[str, Any]) -> None:
    if not isinstance(fields, Mapping):
        raise LabError(f"A training is a leadline.Training or its fields, not {shown(fields)}.")
    names = Training.fields()
    for name in fields:
        if name not in names:
            near = nearest_names(name, names, at_most=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise LabError(
                f"A training has no field {name!r}.{hint} Its fields: {', '.join(names)}."
            )


def _number(name: str, value: object, *, above: float | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
        fits = False
    else:
        fits = value >= 0.0 if above is None else value > above
    if fits:
        return
    expected = f"a number above {above:g}" if above is not None else "a number from 0 on"
    raise LabError(f"{name} is {expected} in a training, not {value!r}.")


def _one_of(name: str, value: object, names: tuple[str, ...]) -> None:
    if value not in names:
        raise LabError(f"No {name} is called {value!r}. Known: {', '.join(names)}.")
