"""A trained model is adapted to a second task, and what its adapters say is heard or not.

update ratio    |d u| / |r x|, the mean over tokens and the writes of a layer: d u is what the
                adapter changes of an update, for the x that enters the sublayer; r x is what
                is kept of the stream. Where the update has a gain, d u has it too.
output change   |d f| / sqrt(sum over writes of |d u|^2), d f the change of the centred logits
                with all adapters on, d u without any gain
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from leadline.experiments.fine_tuning.two_tasks import ByTurns
from leadline.lab.adapters import add_bottlenecks, add_lora, switched_off
from leadline.lab.tasks import Batch, Task
from leadline.lab.trainer import Trainer
from leadline.lab.training import Training
from leadline.parts import Transformer
from leadline.parts.sublayer import Sublayer

__all__ = [
    "METHODS",
    "Adapted",
    "Heard",
    "Together",
    "Tuning",
    "adapted",
    "heard",
    "losses",
    "together",
]

METHODS = ("LoRA", "adapters")
LISTENED = 8
"""On how many examples the adapters are listened to."""


@dataclass(frozen=True)
class Tuning:
    """How a model is adapted: the tasks, how long, how large the adapters are."""

    old: Task
    new: Task
    steps: int
    batch: int
    examples: int
    rank: int
    rate: float
    seed: int

    def train(self, model: Transformer, task: Task, *, steps: int, rate: float) -> Trainer:
        """Train what can be trained of a model."""
        training = Training(
            steps=steps,
            batch=self.batch,
            examples=self.examples,
            rate=rate,
            validate=0,
            gauges=0,
        )
        trainer = Trainer(model, task, training, seed=self.seed)
        trainer.run()
        return trainer


@dataclass(frozen=True)
class Heard:
    """How loud the adapters of a model are: see the module's first lines."""

    ratios: tuple[float, ...]
    """By layer."""
    output: float

    @property
    def ratio(self) -> float:
        """The mean over the layers."""
        return sum(self.ratios) / len(self.ratios)


@dataclass(frozen=True)
class Adapted:
    """Losses of both tasks before and after, and how loud the adapters became."""

    base: float
    """The loss on the old task of the model as it was trained."""
    old_before: float
    new_before: float
    old_after: float
    new_after: float
    heard: Heard


@dataclass(frozen=True)
class Together:
    """All weights trained on the new task alone, and on both tasks by turns, as often on each."""

    old_before: float
    old_alone: float
    new_alone: float
    old_both: float
    new_both: float


def adapted(model: Transformer, tuning: Tuning, *, method: str, base: float) -> Adapted:
    """Adapt a copy of a model to the new task; `base` is its loss on the old one when trained."""
    model = copy.deepcopy(model)
    if method == "LoRA":
        add_lora(model, tuning.rank, seed=tuning.seed)
    else:
        add_bottlenecks(model, tuning.rank, seed=tuning.seed)
    old, new = (task.validation(tuning.examples) for task in (tuning.old, tuning.new))
    old_before, new_before = losses(model, old, new)
    tuning.train(model, tuning.new, steps=tuning.steps, rate=tuning.rate)
    old_after, new_after = losses(model, old, new)
    return Adapted(
        base=base,
        old_before=old_before,
        new_before=new_before,
        old_after=old_after,
        new_after=new_after,
        heard=heard(model, new.ids[:LISTENED]),
    )


def together(model: Transformer, tuning: Tuning, *, rate: float) -> Together:
    """Train copies of a model, all of its weights, on the new task and on both."""
    old, new = (task.validation(tuning.examples) for task in (tuning.old, tuning.new))
    before, _ = losses(model, old, new)
    found: list[float] = []
    both = ByTurns(tuning.old, tuning.new)
    for task, steps in ((tuning.new, tuning.steps), (both, 2 * tuning.steps)):
        one = copy.deepcopy(model)
        tuning.train(one, task, steps=steps, rate=rate)
        found += losses(one, old, new)
    return Together(before, *found)


@torch.no_grad()
def losses(model: Transformer, *batches: Batch) -> list[float]:
    """The mean loss of each batch, in evaluation mode."""
    training = model.training
    model.eval()
    try:
        return [float(model.loss(batch.ids, batch.targets)) for batch in batches]
    finally:
        model.train(training)


@torch.no_grad()
def heard(model: Transformer, ids: Tensor) -> Heard:
    """How loud the adapters of a model are on some tokens."""
    model.eval()
    entered: list[tuple[Sublayer, Any, Any]] = []

    def note(sublayer: Any, given: Sequence[Any]) -> None:
        entered.append((sublayer, *given))

    hooks = [sublayer.register_forward_pre_hook(note) for sublayer in model.sublayers()]
    try:
        output = model(ids)
    finally:
        for hook in hooks:
            hook.remove()
    on = [_update(*one) for one in entered]
    with switched_off(model):
        moved = _centred(output) - _centred(model(ids))
        changes = [u - _update(*one) for u, one in zip(on, entered, strict=True)]
    by_layer: dict[int, list[float]] = {}
    for (sublayer, state, _), change in zip(entered, changes, strict=True):
        kept, written = sublayer.connection.split(state, change)
        ratio = float((written.norm(dim=-1) / kept.norm(dim=-1)).mean())
        by_layer.setdefault(sublayer.connection.place.layer, []).append(ratio)
    total = math.sqrt(sum(float(change.square().sum()) for change in changes))
    return Heard(
        tuple(sum(ratios) / len(ratios) for ratios in by_layer.values()),
        float(moved.norm()) / total if total else math.nan,
    )


def _update(sublayer: Sublayer, state: Any, run: Any) -> Tensor:
    """What the branch returns for a state, past the norm on its output."""
    x: Tensor = sublayer.connection.read(state)
    u: Tensor = sublayer.branch(x if sublayer.enter is None else sublayer.enter(x), run)
    return u if sublayer.exit is None else sublayer.exit(u)


def _centred(logits: Tensor) -> Tensor:
    return logits - logits.mean(-1, keepdim=True)
