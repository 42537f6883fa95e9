"""Records of sweeps and of training runs made by formula: no model, no torch.

`sweep_record` has the designs pre, post and plain at several depths. Every loss is that of a table
of largest depths that train, with seeds that may differ; gauges follow the verdict, with noise.
`training_record` is one run with curves over steps, and with readings by layer if asked.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from leadline.record import Quantity, Reading, Record, Site
from leadline.record.rows.site import RUN
from leadline.record.run.training import (
    GAUGES,
    GRADIENT_NORM,
    GRADIENT_RATIO,
    LEARNING_RATE,
    STREAM_GROWTH,
    TOKEN_COSINE,
    TRAIN_LOSS,
    TRAINING,
    VALIDATION_LOSS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

UNIGRAM, BIGRAM = 3.14, 2.40
LOST = {
    "status": "diverged",
    "reason": "the loss was not finite at step 407",
    "steps": 407,
    "loss": math.nan,
}
"""How a run ends that diverges after its last readings."""
LIMITS = {"pre": 96, "post": 12, "plain": 0}
STEPS = (0, 50, 100, 200)


def sweep_record(
    *,
    limits: Mapping[str, int] = LIMITS,
    depths: Sequence[int] = (6, 12, 24, 48),
    seeds: Sequence[int] = (0, 1, 2),
    changes: Mapping[str, Mapping[str, Any]] | None = None,
    missing: Sequence[str] = (),
    axes: Mapping[str, Sequence[Any]] | None = None,
    name: str = "made",
) -> Record:
    """A sweep of designs by depth. `changes` maps a run to fields of its entry, `missing` is not run.

    `axes` are further axes with their labels; only the first label of each trains.
    """
    record = Record()
    for quantity in (*TRAINING, *GAUGES):
        record.describe(quantity)
    every = {"design": list(limits), "depth": list(depths), **(axes or {})}
    runs = list(_runs(every, seeds))
    grid = {
        "axes": [
            {"name": axis, "settings": [{"label": one, "changes": {}} for one in labels]}
            for axis, labels in every.items()
        ],
        "fixed": {},
    }
    record.note(
        "sweep",
        {
            "name": name,
            "digest": "0" * 64,
            "axes": [{"name": axis, "labels": list(labels)} for axis, labels in every.items()],
            "seeds": list(seeds),
            "fixed": {"width": 64},
            "cells": len(runs),
            "description": {"name": name, "grids": [grid], "seeds": list(seeds)},
        },
    )
    record.note(
        "tasks",
        {"stdlib": {"name": "stdlib", "length": 64, "unigram": UNIGRAM, "bigram": BIGRAM}},
    )
    rng = np.random.default_rng(0)
    for run, labels, seed in runs:
        if run in missing:
            continue
        fits = labels["depth"] <= limits[labels["design"]]
        fits = fits and all(labels[axis] == known[0] for axis, known in (axes or {}).items())
        entry = cell_entry(labels, seed, loss=(2.3 if fits else 3.13) + 0.004 * seed)
        entry |= (changes or {}).get(run, {})
        if entry["status"] not in ("failed", "impossible"):
            record.append(cell_readings(run, seed, entry, good=fits, rng=rng))
        record.note(f"cell:{run}", entry)
    return record


def cell_entry(labels: Mapping[str, Any], seed: int, *, loss: float) -> dict[str, Any]:
    """The entry of a cell that has finished."""
    return {
        "labels": dict(labels),
        "seed": seed,
        "depth": labels.get("depth", 6),
        "task": "stdlib",
        "status": "finished",
        "reason": "all steps done",
        "steps": STEPS[-1],
        "loss": loss,
        "parameters": 49_152 * labels.get("depth", 6),
        "flops": 1e12,
        "seconds": 12.5,
        "host": "here",
        "attempts": 1,
    }


def cell_readings(
    run: str, seed: int, entry: Mapping[str, Any], *, good: bool, rng: np.random.Generator
) -> Iterator[Reading]:
    """Curves that end at the loss of the entry; a cell that diverged stops after step 50."""
    end = entry["loss"]
    diverged = entry["status"] == "diverged"
    for step in STEPS:
        if diverged and step > 50:
            return
        fade = math.exp(-step / 40)
        loss = math.nan if diverged and step else (end or 3.0) + 2.4 * fade
        values = {
            TRAIN_LOSS: loss + 0.05,
            VALIDATION_LOSS: end if step == STEPS[-1] else loss,
            LEARNING_RATE: 1e-3,
            GRADIENT_NORM: 1.0 + fade,
            TOKEN_COSINE: (0.2 if good else 0.8) + 0.3 * fade * rng.random(),
            GRADIENT_RATIO: (1.5 if good else 300.0) * math.exp(rng.normal(0, 2 * fade)),
            STREAM_GROWTH: 4.0 * math.exp(rng.normal(0, 0.5)),
        }
        for quantity, value in values.items():
            if step or quantity not in (TRAIN_LOSS, LEARNING_RATE, GRADIENT_NORM):
                yield Reading(quantity.name, RUN, "value", value, run=run, step=step, seed=seed)


def training_record(
    *,
    steps: int = 400,
    end: float = 2.2,
    layers: bool = False,
    name: str = "small",
    seed: int = 0,
    outcome: Mapping[str, Any] | None = None,
) -> Record:
    """One run of the name '': losses fall, gauges move; by layer at two steps if asked.

    `outcome` is how it ended; without one it has not ended.
    """
    record = Record()
    for quantity in (*TRAINING, *GAUGES):
        record.describe(quantity)
    rng = np.random.default_rng(seed)
    record.append(
        Reading(quantity.name, RUN, "value", value, step=step, seed=seed)
        for step in range(0, steps + 1, 10)
        for fade in [math.exp(-4 * step / steps)]
        for quantity, value, every in (
            (TRAIN_LOSS, end + 3.3 * fade + 0.05 * rng.random(), 10),
            (VALIDATION_LOSS, end + 3.3 * fade, 50),
            (LEARNING_RATE, 1e-3 * min(1.0, (step + 1) / 100), 10),
            (GRADIENT_NORM, 0.3 + 2.0 * fade, 10),
            (TOKEN_COSINE, 0.1 + 0.2 * (1 - fade), 50),
            (GRADIENT_RATIO, 1.2 + fade, 50),
            (STREAM_GROWTH, 2.0 + 3.0 * (1 - fade), 50),
        )
        if step % every == 0
        and (step or quantity not in (TRAIN_LOSS, LEARNING_RATE, GRADIENT_NORM))
    )
    if layers:
        record.describe(
            Quantity("stream.norm", "Norm of the stream", "|x_l|", "sqrt(sum x^2)", scale="log")
        )
        record.append(
            Reading(
                "stream.norm", Site("decoder", l), "mean", 4.0 * 1.1**l + step / steps,
                step=step, seed=seed,
            )
            for step in (0, steps)
            for l in range(7)
        )  # fmt: skip
    record.note("model", {"name": name, "class": "Transformer", "parameters": 300_000})
    record.note("task", {"name": "stdlib", "unigram": UNIGRAM, "bigram": BIGRAM, "length": 64})
    record.note("training", {"steps": steps, "batch": 16, "rate": 1e-3})
    if outcome is not None:
        record.note("outcome", dict(outcome))
    return record


def _runs(
    axes: Mapping[str, Sequence[Any]], seeds: Sequence[int]
) -> Iterator[tuple[str, dict[str, Any], int]]:
    places: list[dict[str, Any]] = [{}]
    for axis, labels in axes.items():
        places = [{**place, axis: label} for place in places for label in labels]
    for place in places:
        for seed in seeds:
            words = [f"{axis}={label}" for axis, label in place.items()]
            yield ", ".join([*words, f"seed={seed}"]), place, seed
