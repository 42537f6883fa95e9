"""The training runs that the claims share: one run per design, depth, steps, warm-up and rate.

The designs are those of the presets depth-limits and mlp-towers, with Xavier's init wherever a
design has none of its own, AdamW without clipping, on the bytes of Python's own library. The runs
are smaller than those of the presets: width 32, 2 heads, windows of 32 bytes, 16 of them per
update, so that all of them together take minutes.

    gain = unigram entropy - validation loss        nats

A model that gives one answer everywhere cannot have a gain above 0, except by chance: the unigram
entropy is the loss of the frequencies. Two words are used throughout:

    trains   gain of at least 0.3, the margin of the map of what trains (`analysis.trainability`)
    stuck    gain of at most 0.1

Over seeds the gain of a run that is stuck at the frequencies varies by about 0.01, and that of most
runs that train by 0.02 to 0.04. One kind varies much more: post-norm of 12 layers with a warm-up or
a smaller rate. Nine such runs ended 0.18 to 0.51 nats below the entropy: all of them had left the
frequencies behind, and not all trained. No verdict rests on how far they get; the corrections ask
no more of them than a gain above that of a stuck run (`leaves`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from leadline.claims.catalog import Trial
from leadline.claims.claim import Check
from leadline.reading.map.trainability import MARGIN

if TYPE_CHECKING:
    from leadline.lab.trainer import Ending, Trainer

__all__ = [
    "RATE",
    "STUCK",
    "TRAINS",
    "cell",
    "cosines",
    "curve",
    "gain",
    "leaves",
    "profile",
    "ratios",
    "reached",
    "slower",
    "stuck",
    "tower",
    "train",
    "trains",
]

TRAINS = MARGIN
"""Nats below the unigram entropy from which on a run trains: the product's own margin."""
STUCK = 0.1
"""Nats below the unigram entropy up to which a run has learned frequencies alone."""
BECAUSE_TRAINS = (
    "Trains means at least 0.3 nats below the unigram entropy, the margin of the map of what "
    "trains; over seeds most such runs vary by 0.02 to 0.04."
)
BECAUSE_STUCK = (
    "Stuck means less than 0.1 nats below the unigram entropy, the loss of a model that knows "
    "frequencies alone; over seeds a stuck run varies by about 0.01."
)
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
SECONDS = 0.0017
"""About what one layer costs per update, on one core."""
TOWER_SECONDS = 0.0003
"""The same for a layer of a tower."""


def fields_of(
    design: str, depth: int, *, steps: int, warmup: int = 0, rate: float = RATE
) -> dict[str, Any]:
    """The fields of recipe and training of a run of the preset depth-limits, made small."""
    from leadline.lab.presets.depth_limits import DESIGNS, FIXED

    own = {**EXTRA, **DESIGNS}[design]
    return {**FIXED, **SMALL, **own, **_timed(depth, steps=steps, warmup=warmup, rate=rate)}


EXTRA: dict[str, dict[str, Any]] = {
    "no norm": {"connection": "identity", "placement": "none"},
    "weighted, no norm": {
        "connection": "weighted(alpha=depth)",
        "placement": "none(closing=false)",
    },
    "pre, small init": {"connection": "identity", "placement": "pre", "init": "gpt2"},
    "dropout": {"connection": "dropout(rate=0.1)", "placement": "pre"},
    "weighted pre": {"connection": "weighted(alpha=depth)", "placement": "pre"},
    "layerdrop": {"connection": "layerdrop(rate=0.5)", "placement": "pre"},
}
"""Designs that the preset has not."""


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


@functools.cache
def cell(
    design: str, depth: int, *, steps: int = STEPS, warmup: int = 0, rate: float = RATE
) -> Trial:
    """The trial of a Transformer."""
    name = f"{design}, {depth} layers, {steps} steps"
    name += f", warm-up {warmup}" if warmup else ""
    name += f", rate {rate:g}" if rate != RATE else ""

    def run(seed: int) -> Mapping[str, Any]:
        fields = fields_of(design, depth, steps=steps, warmup=warmup, rate=rate)
        return _found(*train(fields, seed=seed))

    return Trial(name, run, seconds=round(SECONDS * depth * steps + 0.5, 1))


@functools.cache
def tower(design: str, depth: int, *, steps: int, rate: float = RATE) -> Trial:
    """The trial of a tower of MLPs, of the preset mlp-towers."""

    def run(seed: int) -> Mapping[str, Any]:
        from leadline.lab.presets.mlp_towers import DESIGNS, FIXED

        timed = _timed(depth, steps=steps, warmup=0, rate=rate)
        # The gauges of a thousand layers would cost as much as the training.
        small = {"task": "stdlib(length=32)", "examples": 128, "layers": False, "gauges": 0}
        return _found(*train({**FIXED, **DESIGNS[design], **timed, **small}, seed=seed))

    name = f"{design} tower, {depth} layers, {steps} steps"
    name += f", rate {rate:g}" if rate != RATE else ""
    return Trial(name, run, seconds=round(TOWER_SECONDS * depth * steps + 0.5, 1))


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


def _found(trainer: Trainer, ending: Ending) -> dict[str, Any]:
    """What a run leaves behind, as JSON."""
    from leadline.record.provenance import strict_json
    from leadline.record.run.training import (
        GRADIENT_RATIO,
        TOKEN_COSINE,
        TRAIN_LOSS,
        VALIDATION_LOSS,
    )

    entropies = trainer.task.entropies(trainer.training.examples)

    def rows(quantity: str) -> list[list[float]]:
        found = [r for r in trainer.readings if r.quantity == quantity]
        return [[float(r.step), float(r.value)] for r in found]

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
    """What a look into the trained model shows, layer by layer, on some validation examples."""
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


# --- checks of a gain -----------------------------------------------------------------------


def trains(number: str, part: str, label: str) -> Check:
    """The run with this gain trains, with every seed."""
    return Check(number, part, "at least", TRAINS, label=label, because=BECAUSE_TRAINS)


def leaves(number: str, part: str, label: str) -> Check:
    """The run with this gain has left the frequencies behind, with every seed."""
    return Check(number, part, "at least", STUCK, label=label, because=BECAUSE_STUCK)


def stuck(number: str, part: str, label: str) -> Check:
    """The run with this gain has learned frequencies alone, with every seed."""
    return Check(number, part, "at most", STUCK, label=label, because=BECAUSE_STUCK)


# --- reading a run -------------------------------------------------------------------------


def gain(found: Mapping[str, Any]) -> float:
    """Nats below the unigram entropy; minus infinity where the loss is no number any more."""
    loss = found["loss"]
    return -math.inf if loss is None else float(found["unigram"]) - float(loss)


def ratios(found: Mapping[str, Any]) -> tuple[float, float]:
    """|g_0| / |g_L| before the first update and after the last."""
    return _ends(found["ratio"])


def cosines(found: Mapping[str, Any]) -> tuple[float, float]:
    """The mean cosine of two tokens after the last layer, before the first update and after all."""
    return _ends(found["cosine"])


def profile(found: Mapping[str, Any]) -> tuple[float, ...]:
    """|dL/dx_l| at l = 0 ... L after the last update."""
    return tuple(_number(value) for value in found["profile"])


def curve(found: Mapping[str, Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Steps and training losses; points that are no numbers are left out."""
    pairs = [(step, value) for step, value in found["curve"] if isinstance(value, int | float)]
    return tuple(float(step) for step, _ in pairs), tuple(float(value) for _, value in pairs)


def reached(found: Mapping[str, Any], below: float = TRAINS) -> float:
    """The first update after which the held-out loss was read so far below the unigram entropy.

    The training loss would not do: some batches are easier than others, by more than what is
    asked about. Infinite where the loss never gets there.
    """
    limit = float(found["unigram"]) - below
    return next(
        (float(step) for step, loss in found["held_out"] if _number(loss) <= limit), math.inf
    )


def slower(one: Mapping[str, Any], other: Mapping[str, Any], *, below: float = TRAINS) -> float:
    """How many times as many updates as the other a run needs to get so far.

    A run that never gets there has needed more than it was given, so the number is then too
    small; it is 0 where the other never does.
    """
    return min(reached(one, below), float(one["steps"])) / reached(other, below)


def _ends(rows: list[list[Any]]) -> tuple[float, float]:
    if not rows:
        return math.nan, math.nan
    return _number(rows[0][1]), _number(rows[-1][1])


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
