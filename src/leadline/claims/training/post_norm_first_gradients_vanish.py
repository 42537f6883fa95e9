"""In deep post-norm models the first layers get tiny gradients, once training has begun.

The talk lists it among what is seen when deep post-norm models are trained, the summary says that
the gradient vanishes through the norm. The claim is read in training, at 24 layers without
warm-up; the reach is a post-norm model before its first update and one that trains. |g_0| / |g_L|
is the gradient of the loss at the stream before the first layer over that after the last.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check
from leadline.claims.training._cells import cell, cosines, gain, ratios, trains
from leadline.claims.training._pictures import gradients

DEEP, SHALLOW = cell("post", 24), cell("post", 6)
TINY = "Tiny is read as less than a hundredth of the gradient at the end."
THERE = "A gradient of at least a tenth of that at the end is not tiny."


@claim(
    "post-norm-first-gradients-vanish",
    group="training",
    notes=("shortcuts", "summary"),
    title="In deep post-norm models the first layers get tiny gradients",
    formula=r"\left\|\frac{\partial L}{\partial x_0}\right\| \ll "
    r"\left\|\frac{\partial L}{\partial x_L}\right\|",
    plain="post-norm: ‖∂L/∂x₀‖ ≪ ‖∂L/∂x_L‖",
    says="Training deep post-norm models shows very small gradients in the first layers, because "
    "the gradient passes through the norm of every layer.",
    correction="The vanishing is acquired. Before the first update the gradient at the entry is "
    "of the order of that at the end; it vanishes in training where all tokens have become one "
    "vector. A post-norm model that trains loses most of it at first and gets it back.",
    why="With 24 layers and no warm-up the gradient at the entry over that at the end is {start} "
    "before the first update and {end} after 300 updates, when the mean cosine of two tokens is "
    "{cosine:.4f}. At 6 layers, where post-norm trains, the ratio falls to {shallow_least:.2f} "
    "and ends at {shallow:.2f}. So passing through the norms does not by itself shrink the "
    "gradient; it vanishes together with the differences between tokens.",
    checks=(
        Check(
            "end", "claim", "at most", 0.01, label="|g₀|/|g_L| after training, 24 layers",
            because=TINY, log=True,
        ),
        Check(
            "start", "reach", "at most", 0.01, label="|g₀|/|g_L| before training, 24 layers",
            because=TINY, log=True,
        ),
        Check(
            "shallow", "reach", "at most", 0.01, label="|g₀|/|g_L| after training, 6 layers",
            because=TINY, log=True,
        ),
        Check(
            "cosine", "correction", "at least", 0.999,
            label="token cosine after training, 24 layers",
            because="One vector is read as a mean cosine of 0.999; a trained model has about 0.6.",
        ),
        Check(
            "start_kept", "correction", "at least", 0.1,
            label="|g₀|/|g_L| or its inverse before training, smallest of 6 and 24 layers",
            because="Of the same order is read as within a factor of ten.", log=True,
        ),
        Check(
            "shallow_kept", "correction", "at least", 0.1,
            label="|g₀|/|g_L| after training, 6 layers, again", because=THERE, log=True,
        ),
        Check(
            "shallow_least", "correction", "at most", 0.5,
            label="smallest |g₀|/|g_L| in training, 6 layers",
            because="To lose most of it is read as to fall below one half.", log=True,
        ),
        trains("shallow_gain", "correction", "gain of 6 layers"),
    ),
    source="Noci et al. 2022, arXiv 2206.03126, on collapsed tokens and vanishing gradients",
    seconds=0.01,
    needs=(DEEP, SHALLOW),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Gradient ratios of two post-norm runs: before, in between and after."""
    runs = {
        "24 layers, no warm-up": trials[DEEP.name],
        "6 layers, no warm-up": trials[SHALLOW.name],
    }
    deep, shallow = map(ratios, runs.values())
    rows = trials[SHALLOW.name]["ratio"]
    readings = [float(value) for _, value in rows if value is not None]
    return Measured(
        {
            "start": deep[0],
            "end": deep[1],
            "shallow": shallow[1],
            "shallow_kept": shallow[1],
            "shallow_least": min(readings, default=math.nan),
            "shallow_gain": gain(trials[SHALLOW.name]),
            "start_kept": min(min(one[0], 1 / one[0]) for one in (deep, shallow)),
            "cosine": cosines(trials[DEEP.name])[1],
        },
        gradients(runs),
    )
