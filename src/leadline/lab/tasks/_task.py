"""What a task is: examples by seed and step, a fixed validation part, and what a stuck model scores.

    train(step, examples, seed=...) -> Batch     a pure function of its arguments: nothing is kept
                                                 between steps, so any step can be made alone
    validation(examples) -> Batch                fixed, and never part of what train gives
    entropies(examples) -> Entropies             of validation(examples)
    facts() -> dict                              what stands in the record

A task writes train and validation; where examples are drawn at random, `Drawn` has both and asks
for `draw` alone. Options are the keyword arguments of the constructor, kept as attributes of the
same names.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch

from leadline.catalog import Catalog, Choice
from leadline.errors import LabError
from leadline.lab.tasks._batch import IGNORED, Batch
from leadline.lab.tasks._entropies import Counts, Entropies, count, entropies_of

__all__ = [
    "HELD_OUT",
    "SAMPLE",
    "TASKS",
    "Task",
    "at_least_one",
    "build_task",
    "check_whole",
    "generator_of",
]

TASKS: Catalog[type[Task]] = Catalog("task", package="leadline.lab.tasks", group="leadline.tasks")

HELD_OUT = 10
"""One part in so many is held out for validation, of a text and of what is drawn."""
SAMPLE = 131072
"""Frequencies of a task that has no end are counted on at least so many training targets."""
_AT_ONCE = 4096
"""So many examples are drawn at a time while frequencies are counted."""


class Task(ABC):
    """Draws examples by seed and step, and keeps some of them out of training for validation."""

    name: ClassVar[str]
    """The name in the catalog."""
    vocabulary: int
    """Ids and targets are below it."""
    length: int
    """Tokens of an example."""
    causal: bool = True
    """Whether the ids hold answers to earlier positions, so that only a causal model is tested."""

    @abstractmethod
    def train(self, step: int, examples: int, *, seed: int) -> Batch:
        """Return the batch of one step."""

    @abstractmethod
    def validation(self, examples: int) -> Batch:
        """Return so many examples that are never trained on, the same in every run."""

    def evidence(self) -> Iterable[Batch]:
        """The training targets that frequencies are counted on: the first batches of seed 0."""
        counted = step = 0
        while counted < SAMPLE:
            batch = self.train(step, _AT_ONCE, seed=0)
            counted, step = counted + int((batch.targets != IGNORED).sum()), step + 1
            yield batch

    def entropies(self, examples: int) -> Entropies:
        """What a model scores on `validation(examples)` that knows frequencies alone."""
        return entropies_of(self._counts, self.validation(examples))

    def choice(self) -> Choice:
        """The task with all its options."""
        options = inspect.signature(type(self)).parameters
        return Choice(self.name, **{option: getattr(self, option) for option in options})

    def facts(self) -> dict[str, Any]:
        """Describe the task as JSON, for the record."""
        return {
            "name": self.name,
            "options": {k: v for k, v in self.choice().to_json().items() if k != "name"},
            "vocabulary": self.vocabulary,
            "length": self.length,
            "causal": self.causal,
        }

    @functools.cached_property
    def _counts(self) -> Counts:
        return count(self.evidence(), self.vocabulary)


def build_task(choice: str | Mapping[str, Any] | Choice) -> Task:
    """Build the task of a choice.

    A process builds each once: a text is read once, and not again where its file has changed.
    """
    return _build_once(str(TASKS.check(choice)))


@functools.lru_cache(maxsize=16)
def _build_once(spelling: str) -> Task:
    # By its text, because as values the options 1, 1.0 and true would be one.
    return TASKS.build(spelling)


def generator_of(
    task: str, *, part: str = "train", seed: int = 0, step: int = 0
) -> torch.Generator:
    """The generator of one step, by a hash of all that it belongs to.

    A generator of torch keeps 32 bits of its seed on CPU. The lowest of them is 0 for training and
    1 for every other part, so that these never share a generator.
    """
    digest = hashlib.sha256(f"{task}:{part}:{seed}:{step}".encode()).digest()
    bits = int.from_bytes(digest[:4], "big") >> 1
    return torch.Generator().manual_seed(2 * bits + (part != "train"))


def at_least_one(task: str, examples: int) -> None:
    """Refuse a batch without examples."""
    if examples < 1:
        raise LabError(
            f"{examples} examples of the task {task} were asked for; ask for at least 1."
        )


def check_whole(task: str, option: str, value: object, *, least: int = 1) -> int:
    """Return the value of an option, or refuse what is no whole number from `least` on."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    raise LabError(
        f"The option {option} of the task {task} is {value!r}; give a whole number from {least} on."
    )
