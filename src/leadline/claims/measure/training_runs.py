"""The training runs that claims share: one run per design, depth, steps, warm-up and rate.

The designs are those of the presets depth-limits and mlp-towers, with Xavier's init wherever a
design has none of its own, AdamW without clipping, on the bytes of Python's own library. The runs
are smaller than those of the presets: width 32, 2 heads, windows of 32 bytes, 16 of them per
update, so that all of them together take minutes.

    gain = unigram entropy - validation loss        nats

A model that gives one answer everywhere cannot have a gain above 0, except by chance: the unigram
entropy is the loss of the frequencies. Three words are used throughout, as limits of the texts:

    trains   gain of at least 0.3, the margin of the map of what trains (`reading.map.trainability`)
    stuck    gain of at most 0.1
    leaves   gain of at least 0.1: no longer stuck, whether or not it trains

Over seeds the gain of a run that is stuck at the frequencies varies by about 0.01, and that of most
runs that train by 0.02 to 0.04. One kind varies much more: post-norm of 12 layers with a warm-up or
a smaller rate. Nine such runs ended 0.18 to 0.51 nats below the entropy: all of them had left the
frequencies behind, and not all trained. No verdict rests on how far they get; the corrections ask
no more of them than that they leave.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from leadline.claims.catalog import Measured, Results, Trial
from leadline.claims.claim import Picture
from leadline.reading.map.trainability import MARGIN

if TYPE_CHECKING:
    from leadline.lab.trainer import Ending, Trainer

Run = Mapping[str, Any]
"""What a training run leaves behind."""

RATE, STEPS = 1e-3, 300
"""The learning rate and the number of updates, where nothing else is said."""
SMALL: dict[str, Any] = {
    "width": 32,
    "heads": 2,
    "task": "stdlib(length=32)",
    "batch": 16,
    "examples": 128,
    "layers": True,
}
READINGS = 6
"""How often the gauges are read during a run, beside the first time."""
LOG = 5
"""Steps between two points of a curve: each is a mean over so many updates."""
WATCHED, READ_EVERY = (2, 3, 24), 20
"""Runs of so many layers have their held-out loss read during training, every so many updates."""
INSIDE = range(2, 13)
"""How many layers a model has that is looked into after its training."""
LOOKED_AT = 32
"""On how many validation examples."""
SECONDS, TOWER_SECONDS = 0.0017, 0.0003
"""About what one layer costs per update, on one core, in a Transformer and in a tower."""
EXTRA: dict[str, dict[str, Any]] = {
    "no norm": {"connection": "identity", "placement": "none"},
    "weighted, no norm": {
        "connection": "weighted(alpha=depth)",
        "placement": "none(closing=false)",
    },
    "dropout": {"connection": "dropout(rate=0.1)", "placement": "pre"},
    "weighted pre": {"connection": "weighted(alpha=depth)", "placement": "pre"},
    "layerdrop": {"connection": "layerdrop(rate=0.5)", "placement": "pre"},
}
"""Designs that the preset has not."""


@functools.cache
def cell(
    design: str, depth: int, *, steps: int = STEPS, warmup: int = 0, rate: float = RATE
) -> Trial:
    """Return the trial of a Transformer."""
    name = f"{design}, {depth} layers, {steps} steps"
    name += f", warm-up {warmup}" if warmup else ""
    name += f", rate {rate:g}" if rate != RATE else ""

    def run(seed: int) -> Run:
        fields = fields_of(design, depth, steps=steps, warmup=warmup, rate=rate)
        return _left_behind(*train(fields, seed=seed))

    return Trial(name, run, seconds=round(SECONDS * depth * steps + 0.5, 1))


@functools.cache
def tower(design: str, depth: int, *, steps: int = STEPS, rate: float = RATE) -> Trial:
    """Return the trial of a tower of MLPs, of the preset mlp-towers."""

    def run(seed: int) -> Run:
        from leadline.lab.presets.mlp_towers import DESIGNS, FIXED

        timed = _timed(depth, steps=steps, warmup=0, rate=rate)
        # The gauges of a thousand layers would cost as much as the training.
        small = {"task": "stdlib(length=32)", "examples": 128, "layers": False, "gauges": 0}
        return _left_behind(*train({**FIXED, **DESIGNS[design], **timed, **small}, seed=seed))

    name = f"{design} tower, {depth} layers, {steps} steps"
    name += f", rate {rate:g}" if rate != RATE else ""
    return Trial(name, run, seconds=round(TOWER_SECONDS * depth * steps + 0.5, 1))


def fields_of(
    design: str, depth: int, *, steps: int, warmup: int = 0, rate: float = RATE
) -> dict[str, Any]:
    """Return the fields of a run of the preset depth-limits, made small."""
    from leadline.lab.presets.depth_limits import DESIGNS, FIXED

    timed = _timed(depth, steps=steps, warmup=warmup, rate=rate)
    return {**FIXED, **SMALL, **{**EXTRA, **DESIGNS}[design], **timed}


def _timed(depth: int, *, steps: int, warmup: int, rate: float) -> dict[str, Any]:
    return {
        "depth": depth,
        "steps": steps,
        "warmup": warmup,
        "rate": rate,
        "log": LOG,
        "validate": READ_EVERY if depth in WATCHED else 0,
        "gauges": max(1, steps // READINGS),
    }


def train(fields: Mapping[str, Any], *, seed: int) -> tuple[Trainer, Ending]:
    """Train with one thread; everything follows from the fields and the seed."""
    from leadline.lab.cell import torch_threads
    from leadline.lab.fields import split_fields
    from leadline.lab.tasks import build_task
    from leadline.lab.trainer import Trainer, model_for
    from leadline.lab.training import Training
    from leadline.parts import Recipe

    of_recipe, of_training = split_fields(fields)
    training = Training.from_json(of_training)
    task = build_task(training.task)
    with torch_threads(1):
        model = model_for(Recipe.from_json(of_recipe), task, seed=seed)
        trainer = Trainer(model, task, training, seed=seed)
        return trainer, trainer.run()


def _left_behind(trainer: Trainer, ending: Ending) -> dict[str, Any]:
    """Return what a run leaves behind, as JSON."""
    from leadline.record.provenance import strict_json
    from leadline.record.run.training import (
        GRADIENT_RATIO,
        TOKEN_COSINE,
        TRAIN_LOSS,
        VALIDATION_LOSS,
    )

    entropies = trainer.task.entropies(trainer.training.examples)

    def rows(quantity: str) -> list[list[float]]:
        several = [r for r in trainer.readings if r.quantity == quantity]
        return [[float(r.step), float(r.value)] for r in several]

    last = [
        r
        for r in trainer.readings
        if r.quantity == "gradient.stream"
        and r.statistic == "total"
        and r.site.sublayer is None
        and r.step == ending.steps
    ]
    inside = trainer.step == trainer.steps and len(last) - 1 in INSIDE
    return strict_json(
        {
            **(_inside(trainer) if inside else {}),
            "status": ending.status,
            "steps": ending.steps,
            "loss": float(ending.loss),
            "unigram": entropies.unigram,
            "bigram": entropies.bigram,
            "curve": rows(TRAIN_LOSS.name),
            "held_out": rows(VALIDATION_LOSS.name),
            "ratio": rows(GRADIENT_RATIO.name),
            "cosine": rows(TOKEN_COSINE.name),
            "profile": [float(r.value) for r in sorted(last, key=lambda r: r.site.layer)],
        }
    )


def _inside(trainer: Trainer) -> dict[str, Any]:
    """Return what a look into the trained model shows, layer by layer, on validation examples."""
    from leadline.instruments.passes.measurement import measure
    from leadline.lab.cell import torch_threads

    ids = trainer.task.validation(LOOKED_AT).ids
    trainer.model.eval()
    with torch_threads(1):
        record = measure(trainer.model, ids, probes=["recall", "update"], ablate="block", seed=0)

    def by_layer(quantity: str, **which: Any) -> list[float]:
        rows = sorted(record.select(quantity, **which), key=lambda row: row.site.layer)
        return [float(row.value) for row in rows]

    attention, mlp = (
        by_layer("update.ratio", statistic="mean", sublayer=number) for number in (1, 2)
    )
    return {
        "recall": by_layer("memory.r2"),
        "without": by_layer("ablation.block"),
        "updates": [list(pair) for pair in zip(attention, mlp, strict=True)],
    }


def gain_of(run: Run) -> float:
    """Return the nats below the unigram entropy; minus infinity where the loss is no number."""
    return -math.inf if run["loss"] is None else float(run["unigram"]) - float(run["loss"])


def ratios_of(run: Run) -> tuple[float, float]:
    """Return |g_0| / |g_L| before the first update and after the last."""
    return _ends(run["ratio"])


def cosines_of(run: Run) -> tuple[float, float]:
    """Return the mean cosine of two tokens at the end of the stack, before and after training."""
    return _ends(run["cosine"])


def profile_of(run: Run) -> tuple[float, ...]:
    """Return |dL/dx_l| at l = 0 ... L after the last update."""
    return tuple(_number(value) for value in run["profile"])


def curve_of(run: Run) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return steps and training losses; points that are no numbers are left out."""
    pairs = [(step, value) for step, value in run["curve"] if isinstance(value, int | float)]
    return tuple(float(step) for step, _ in pairs), tuple(float(value) for _, value in pairs)


def late_losses_of(run: Run) -> tuple[float, ...]:
    """Return the training losses of the last 50 updates, as means of five."""
    return curve_of(run)[1][-50 // LOG :]


def largest_rise_of(run: Run) -> float:
    """Return the largest rise between two points of the curve that are neighbours, from 100 on."""
    late = [value for step, value in zip(*curve_of(run), strict=True) if step >= 100]
    return max(b - a for a, b in pairwise(late))


def updates_until(run: Run, below: float = MARGIN) -> float:
    """Return the first update after which the held-out loss was so far below the entropy.

    The training loss would not do: some batches are easier than others, by more than what is
    asked about. Infinite where the loss never gets there.
    """
    limit = float(run["unigram"]) - below
    return next((float(step) for step, loss in run["held_out"] if _number(loss) <= limit), math.inf)


def slowdown(run: Run, other: Run) -> float:
    """Return how many times as many updates as the other a run needs until it trains.

    A run that never gets there has needed more than it was given, so the number is then too
    small; it is 0 where the other never does.
    """
    return min(updates_until(run), float(run["steps"])) / updates_until(other)


def _ends(rows: list[list[Any]]) -> tuple[float, float]:
    return (_number(rows[0][1]), _number(rows[-1][1])) if rows else (math.nan, math.nan)


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


class Runs:
    """The training runs of a claim, by the name of a number: the trial, and its line's name.

    The line of a run without a name is not drawn.
    """

    def __init__(self, **runs: tuple[Trial, str]) -> None:
        self.trials = tuple(dict.fromkeys(trial for trial, _ in runs.values()))
        self._runs = runs

    def read(self, results: Results) -> dict[str, Run]:
        """Return what every run left behind."""
        return {name: results[trial.name] for name, (trial, _) in self._runs.items()}

    def gains(self, results: Results) -> dict[str, float]:
        """Return the gain of every run."""
        return {name: gain_of(run) for name, run in self.read(results).items()}

    def measured(self, results: Results, **more: float) -> Measured:
        """Return the gains, more numbers, and the picture of the losses."""
        return Measured({**self.gains(results), **more}, self.losses(results))

    def losses(self, results: Results) -> Picture:
        """Draw the training loss of the runs over their steps, and the loss of the frequencies."""
        frequencies, runs = "unigram entropy", self.drawn(results)
        lines = {name: _thinned(*curve_of(run)) for name, run in runs.items()}
        last = max(x[-1] for x, _ in lines.values())
        height = float(next(iter(runs.values()))["unigram"])
        lines[frequencies] = (0.0, last), (height, height)
        return Picture("steps", "training loss, nats", lines, faint=(frequencies,))

    def gradients(self, results: Results) -> Picture:
        """Draw |dL/dx_l| after the last update, over l / L and over its value at the end."""
        lines: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {}
        for name, run in self.drawn(results).items():
            values = np.array(profile_of(run))
            places = np.linspace(0.0, 1.0, len(values))
            lines[name] = (tuple(places.tolist()), tuple((values / values[-1]).tolist()))
        return Picture("place in the stack", "gradient over that at the end", lines, y_log=True)

    def drawn(self, results: Results) -> dict[str, Run]:
        """Return the runs that are drawn, by the names of their lines."""
        return {line: results[trial.name] for trial, line in self._runs.values() if line}


def _thinned(
    steps: tuple[float, ...], values: tuple[float, ...], points: int = 60
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return means of so many neighbouring points that about `points` are left."""
    size = max(1, len(steps) // points)
    whole = len(steps) // size * size
    x = np.array(steps[:whole]).reshape(-1, size)[:, -1]
    y = np.array(values[:whole]).reshape(-1, size).mean(axis=1)
    return tuple(x.tolist()), tuple(y.tolist())
