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

import torch
from torch import nn

from leadline.errors import Progress, no_progress
from leadline.experiments.layer_dropping import LayerDroppingOptions
from leadline.experiments.layer_dropping.text import Dropped, Model, lines, remarks, tables
from leadline.experiments.outcome.outcome import Outcome
from leadline.lab.optimizer import FlatAdamW
from leadline.lab.tasks import Task, build_task
from leadline.lab.trainer import Trainer, model_for
from leadline.lab.training import Training
from leadline.parts import Transformer
from leadline.record.run.training import VALIDATION_LOSS

__all__ = ["CONNECTIONS", "layer_dropping"]

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


def layer_dropping(
    options: LayerDroppingOptions | None = None,
    *,
    progress: Progress = no_progress,
) -> Outcome:
    """Loss by number of layers dropped, of models trained with and without; and the time saved."""
    options = options or LayerDroppingOptions()
    options.check()
    task = build_task(f"stdlib(length={options.length})")
    seeds = [1000 * options.seed + number for number in range(options.seeds)]
    total = len(CONNECTIONS) * len(seeds) + 1
    progress("timing a step", 0, total)
    times = _times(options, task)
    found: list[Model] = []
    for connection in CONNECTIONS:
        losses: list[Dropped] = []
        for one in seeds:
            done = 1 + len(found) * len(seeds) + len(losses)
            progress(f"{connection}, seed {one}", done, total)
            losses.append(_dropped(_trained(options, connection, task, one), options, one))
        model = model_for(options.recipe(connection), task, seed=0)
        found.append(Model(connection, tuple(losses), times[connection], computed_share(model)))
    return Outcome(
        experiment="layer-dropping",
        title=f"Validation loss by number of layers dropped, of {options.depth}",
        value_label="nats",
        lines=tuple(lines(found)),
        remarks=tuple(remarks(found, task.entropies(options.examples).unigram)),
        records={},
        start=0,
        axis="layers dropped",
        tables=tuple(tables(found)),
        captioned=True,
    )


# --- training and timing -------------------------------------------------------------------


def _trained(options: LayerDroppingOptions, connection: str, task: Task, seed: int) -> Trainer:
    training = Training(
        task=task.choice(),
        steps=options.steps,
        batch=options.batch,
        examples=options.examples,
        validate=max(1, options.steps // READINGS),
        gauges=0,
    )
    trainer = Trainer(
        model_for(options.recipe(connection), task, seed=seed), task, training, seed=seed
    )
    trainer.run()
    return trainer


def _times(options: LayerDroppingOptions, task: Task) -> dict[str, float]:
    """The median time of a training step over that of the first model."""
    batch = task.train(0, options.batch, seed=0)
    runs = {}
    for connection in CONNECTIONS:
        model = model_for(options.recipe(connection), task, seed=0).train()
        runs[connection] = model, FlatAdamW(model, decay=0.01)
    spent: dict[str, list[float]] = {connection: [] for connection in CONNECTIONS}
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        for turn in range(options.turns + 1):
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


def _dropped(trainer: Trainer, options: LayerDroppingOptions, seed: int) -> Dropped:
    model, depth = trainer.model, options.depth
    assert isinstance(model, Transformer)

    def loss(layers: Sequence[int]) -> float:
        with without(model, layers):
            return trainer.validate()

    draw = random.Random(f"{seed} layers")  # noqa: S311
    whole = loss(())
    even, mean, spread = [whole], [whole], [0.0]
    for dropped in range(1, depth):
        even.append(loss(evenly(depth, dropped)))
        drawn = [loss(draw.sample(range(1, depth + 1), dropped)) for _ in range(options.draws)]
        mean.append(statistics.fmean(drawn))
        spread.append(statistics.pstdev(drawn))
    curve = tuple(
        (row.step, row.value) for row in trainer.readings if row.quantity == VALIDATION_LOSS.name
    )
    return Dropped(tuple(even), tuple(mean), tuple(spread), curve)
