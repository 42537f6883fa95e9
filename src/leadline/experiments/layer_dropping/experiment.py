"""Layers dropped in training and at test time.

The notes say that residual connections enable layer dropping during training for efficiency, and
that some layers can effectively be turned off. Here the same pre-norm language model of bytes is
trained plainly, with LayerDrop (Fan et al. 2019, arXiv 1909.11556) and with stochastic depth (Huang
et al. 2016, arXiv 1603.09382), from the same weights and on the same batches. Then k of its L
layers are left out and the validation loss is read:

    evenly     layers floor(i L / k), i = 1 ... k: where k divides L, every (L / k)-th layer, the
               rule of Fan et al.
    at random  the mean over several choices of k layers

A training step (loss, gradient, update) is timed too: the models take turns in one process, and
the time of a model is the median over the turns. Expected is the mean of 1 - p_l over the layers,
the share of the layers that is computed; embedding, head and optimizer are computed whole.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from leadline.errors import InputError, Progress, no_progress
from leadline.experiments.experiment import EXPERIMENTS
from leadline.experiments.layer_dropping.text import Dropped, Model, lines, remarks, tables
from leadline.experiments.outcome import Outcome
from leadline.lab.optimizer import FlatAdamW
from leadline.lab.tasks import Task, build_task
from leadline.lab.trainer import Trainer, model_for
from leadline.lab.training import Training
from leadline.parts import Recipe, Transformer
from leadline.record.run.training import VALIDATION_LOSS

__all__ = ["CONNECTIONS", "Setting", "layer_dropping"]

CONNECTIONS = (
    "identity",
    "layerdrop(rate=0.2)",
    "layerdrop(rate=0.5)",
    "stochastic_depth(rate=0.4)",
)
"""How each model is trained; the first one is what the others are compared with."""
READINGS = 20
"""How often the validation loss is read during training."""
TURN = 4
"""Steps of a model before the next one has its turn."""


@dataclass(frozen=True)
class Setting:
    """What is trained, and how often layers are drawn."""

    depth: int = 12
    width: int = 64
    heads: int = 4
    length: int = 32
    steps: int = 600
    batch: int = 16
    seeds: int = 3
    draws: int = 8
    turns: int = 12
    examples: int = 64

    @classmethod
    def quick(cls) -> Setting:
        """Shows the way of it in less than a minute."""
        return cls(depth=6, steps=150, seeds=2, draws=4, turns=6)

    def check(self) -> None:
        """Refuse what cannot be done, with what to change."""
        for name, least in (("depth", 2), ("steps", 1), ("seeds", 1), ("draws", 1), ("turns", 1)):
            if getattr(self, name) < least:
                raise InputError(
                    f"{name} is {getattr(self, name)}; give a whole number from {least} on."
                )

    def recipe(self, connection: str) -> Recipe:
        """The model of a connection."""
        return Recipe(
            depth=self.depth,
            width=self.width,
            heads=self.heads,
            connection=connection,
            init="xavier",
        )


@EXPERIMENTS.register("layer-dropping")
def layer_dropping(
    setting: Setting | None = None,
    *,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Outcome:
    """Loss by number of layers dropped, of models trained with and without; and the time saved."""
    setting = setting or Setting()
    setting.check()
    task = build_task(f"stdlib(length={setting.length})")
    seeds = [1000 * seed + number for number in range(setting.seeds)]
    total = len(CONNECTIONS) * len(seeds) + 1
    progress("timing a step", 0, total)
    times = _times(setting, task)
    found: list[Model] = []
    for connection in CONNECTIONS:
        losses: list[Dropped] = []
        for one in seeds:
            done = 1 + len(found) * len(seeds) + len(losses)
            progress(f"{connection}, seed {one}", done, total)
            losses.append(_dropped(_trained(setting, connection, task, one), setting, one))
        model = model_for(setting.recipe(connection), task, seed=0)
        found.append(Model(connection, tuple(losses), times[connection], computed_share(model)))
    return Outcome(
        experiment="layer-dropping",
        title=f"Validation loss by number of layers dropped, of {setting.depth}",
        value_label="nats",
        lines=tuple(lines(found)),
        remarks=tuple(remarks(found, task.entropies(setting.examples).unigram)),
        records={},
        start=0,
        axis="layers dropped",
        tables=tuple(tables(found)),
        captioned=True,
    )


# --- training and timing -------------------------------------------------------------------


def _trained(setting: Setting, connection: str, task: Task, seed: int) -> Trainer:
    training = Training(
        task=task.choice(),
        steps=setting.steps,
        batch=setting.batch,
        examples=setting.examples,
        validate=max(1, setting.steps // READINGS),
        gauges=0,
    )
    trainer = Trainer(
        model_for(setting.recipe(connection), task, seed=seed), task, training, seed=seed
    )
    trainer.run()
    return trainer


def _times(setting: Setting, task: Task) -> dict[str, float]:
    """The median time of a training step over that of the first model."""
    batch = task.train(0, setting.batch, seed=0)
    runs = {}
    for connection in CONNECTIONS:
        model = model_for(setting.recipe(connection), task, seed=0).train()
        runs[connection] = model, FlatAdamW(model, decay=0.01)
    spent: dict[str, list[float]] = {connection: [] for connection in CONNECTIONS}
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        for turn in range(setting.turns + 1):
            for connection, (model, optimizer) in runs.items():
                start = time.perf_counter()
                for _ in range(TURN):
                    optimizer.zero()
                    model.loss(batch.ids, batch.targets).backward()
                    optimizer.step(1e-3)
                if turn:  # the first one pays for what is built once
                    spent[connection].append(time.perf_counter() - start)
    medians = {connection: statistics.median(one) for connection, one in spent.items()}
    return {connection: one / medians[CONNECTIONS[0]] for connection, one in medians.items()}


def computed_share(model: Transformer) -> float:
    """The share of the layers that a training step is expected to compute."""
    rates = [float(getattr(sub.connection, "rate", 0.0)) for sub in model.sublayers()]
    return 1.0 - sum(rates) / len(rates)


# --- dropping ------------------------------------------------------------------------------


def evenly(depth: int, dropped: int) -> list[int]:
    """The layers floor(i L / k), i = 1 ... k, counted from 1."""
    return [number * depth // dropped for number in range(1, dropped + 1)]


@contextmanager
def without(model: Transformer, layers: Sequence[int]) -> Iterator[None]:
    """The model without some layers, counted from 1, for a moment."""
    whole = model.blocks
    kept = [block for layer, block in enumerate(whole, 1) if layer not in layers]
    model.blocks = nn.ModuleList(kept)
    try:
        yield
    finally:
        model.blocks = whole


def _dropped(trainer: Trainer, setting: Setting, seed: int) -> Dropped:
    model, depth = trainer.model, setting.depth
    assert isinstance(model, Transformer)

    def loss(layers: Sequence[int]) -> float:
        with without(model, layers):
            return trainer.validate()

    draw = random.Random(f"{seed} layers")  # noqa: S311
    whole = loss(())
    even, mean, spread = [whole], [whole], [0.0]
    for dropped in range(1, depth):
        even.append(loss(evenly(depth, dropped)))
        drawn = [loss(draw.sample(range(1, depth + 1), dropped)) for _ in range(setting.draws)]
        mean.append(statistics.fmean(drawn))
        spread.append(statistics.pstdev(drawn))
    curve = tuple(
        (row.step, row.value) for row in trainer.readings if row.quantity == VALIDATION_LOSS.name
    )
    return Dropped(tuple(even), tuple(mean), tuple(spread), curve)
