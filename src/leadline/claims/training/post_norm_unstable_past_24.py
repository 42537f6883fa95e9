"""Post-norm becomes unstable past 24 layers.

Two readings meet here: that post-norm beyond 24 layers does not train (the claim, at 96 layers),
and that up to 24 it does and that the trouble is instability (the reach). Unstable is read as a
training loss that jumps: the largest rise of the mean of five updates after step 100. The batches
are the same in all runs, so a model that has learned the frequencies shows what the batches alone
do.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check
from leadline.claims.training._cells import cell, cosines, curve, gain, ratios, stuck, trains
from leadline.claims.training._pictures import losses

DEEP, LIMIT, PRE = cell("post", 96), cell("post", 24), cell("pre", 24)
AFTER = 100


@claim(
    "post-norm-unstable-past-24",
    group="training",
    notes=("shortcuts",),
    title="Post-norm easily becomes unstable past 24 layers",
    formula=r"x_{l+1} = \mathrm{LN}(x_l + F(x_l)), \quad L > 24",
    plain="LN(x + F(x)) is unstable for L > 24",
    says="Beyond 24 layers post-norm easily becomes unstable.",
    correction="Beyond 24 layers post-norm does not train in these settings, and at 24 it does "
    "not either. It is stuck, not unstable: its loss stays at that of the byte frequencies and "
    "jumps no more than that of a model that trains.",
    why="Without warm-up at a rate of 0.001 post-norm gains {deep:.2f} nats over the entropy of "
    "the byte frequencies at 96 layers and {limit:.2f} at 24. From update 100 on, its loss at 96 "
    "layers rises by {jump:.2f} nats at most between two means of five updates; pre-norm of 24 "
    "layers, which trains, rises by {pre_jump:.2f} on the same batches. Nothing jumps: the mean "
    "cosine of two tokens is {alike:.4f}, and the gradient at the entry is {ratio} of that at the "
    "end.",
    checks=(
        stuck("deep", "claim", "gain of 96 layers"),
        trains("limit", "reach", "gain of 24 layers"),
        Check(
            "excess", "reach", "at least", 0.5,
            label="largest rise of the loss, post-norm of 96 layers minus pre-norm of 24",
            because="An unstable loss is read as one that jumps by half a nat more than the "
            "batches alone make it.",
        ),
        Check(
            "calm", "correction", "at most", 0.25,
            label="the same, in size",
            because="The batches are the same; a quarter of a nat is what five of them differ by.",
        ),
    ),
    seconds=0.01,
    needs=(DEEP, LIMIT, PRE),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Gains, and the largest rise of the training loss."""
    runs = {
        "post-norm, 96 layers": trials[DEEP.name],
        "post-norm, 24 layers": trials[LIMIT.name],
        "pre-norm, 24 layers": trials[PRE.name],
    }
    jump, pre_jump = largest_rise(trials[DEEP.name]), largest_rise(trials[PRE.name])
    return Measured(
        {
            "deep": gain(trials[DEEP.name]),
            "limit": gain(trials[LIMIT.name]),
            "jump": jump,
            "pre_jump": pre_jump,
            "excess": jump - pre_jump,
            "calm": abs(jump - pre_jump),
            "alike": cosines(trials[DEEP.name])[1],
            "ratio": ratios(trials[DEEP.name])[1],
        },
        losses(runs),
    )


def largest_rise(found: Mapping[str, Any]) -> float:
    """The largest rise between two neighbouring points of the curve, after the first updates."""
    steps, values = curve(found)
    late = [value for step, value in zip(steps, values, strict=True) if step >= AFTER]
    return max(b - a for a, b in pairwise(late))
