"""A second task beside the first: the same text read backwards, and both by turns.

    backwards:   ids = b_n ... b_1,   targets = b_(n-1) ... b_0   for a window b_0 ... b_n
    by turns:    the first task at even steps, the second at odd ones

Read backwards a text has the same frequencies of symbols and other rules, and nothing in a single
symbol tells the two apart: a model must change, and what it knew is in the way.
"""

from __future__ import annotations

from typing import Any

from leadline.catalog import Choice
from leadline.lab.tasks import Batch, Task

__all__ = ["Backwards", "ByTurns"]


class Backwards(Task):
    """The windows of another task, from their last symbol to their first."""

    name = "backwards"

    def __init__(self, task: Task) -> None:
        self.task = task
        self.vocabulary, self.length = task.vocabulary, task.length

    def train(self, step: int, examples: int, *, seed: int) -> Batch:
        return _turned(self.task.train(step, examples, seed=seed))

    def validation(self, examples: int) -> Batch:
        return _turned(self.task.validation(examples))

    def choice(self) -> Choice:
        return Choice(self.name, task=str(self.task.choice()))

    def facts(self) -> dict[str, Any]:
        return {**self.task.facts(), "read": self.name}


class ByTurns(Task):
    """Two tasks by turns; the second one is what validation is about."""

    name = "by turns"

    def __init__(self, first: Task, second: Task) -> None:
        self.tasks = first, second
        self.vocabulary, self.length = first.vocabulary, first.length

    def train(self, step: int, examples: int, *, seed: int) -> Batch:
        return self.tasks[step % 2].train(step // 2, examples, seed=seed)

    def validation(self, examples: int) -> Batch:
        return self.tasks[1].validation(examples)

    def choice(self) -> Choice:
        first, second = (str(task.choice()) for task in self.tasks)
        return Choice("by_turns", first=first, second=second)

    def facts(self) -> dict[str, Any]:
        return {"name": self.name, "tasks": [task.facts() for task in self.tasks]}


def _turned(batch: Batch) -> Batch:
    return Batch(batch.targets.flip(1), batch.ids.flip(1))
