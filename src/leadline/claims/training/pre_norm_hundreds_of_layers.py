"""Pre-norm Transformers train at a hundred layers and more, without warm-up.

The talk says 96 layers and more, the summary that it works very well even at 100 and more, the
card 100 and more, the textbook hundreds without instability. The claim is 96 and 200 layers,
without warm-up, and that the loss of 200 layers does not jump: the largest rise of the mean of five
updates from step 100 on, beside that of 12 layers on the same batches. How far 200 layers are
behind 12 after as many updates is told and decides nothing: no note says that depth is free.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check
from leadline.claims.training._cells import cell, cosines, curve, gain, trains
from leadline.claims.training._pictures import losses

SHALLOW, HUNDRED = cell("pre", 12), cell("pre", 96)
HUNDREDS = cell("pre", 200)
LAST = 10
"""Points of a curve whose mean is compared: 50 updates."""
AFTER = 100
"""The update from which on rises of the loss count."""


@claim(
    "pre-norm-hundreds-of-layers",
    group="training",
    notes=("shortcuts", "summary", "textbook", "card", "deep-dive"),
    title="Pre-norm Transformers train at a hundred layers and more",
    formula=r"x_{l+1} = x_l + F(\mathrm{LN}(x_l)), \quad L \geq 100",
    plain="x + F(LN(x)) trains for L ≥ 100",
    says="With pre-norm, Transformers of 96, of more than 100, even of hundreds of layers train "
    "well and without instability.",
    correction="",
    why="Models of 12, 96 and 200 layers were trained alike, without warm-up. They end "
    "{shallow:.2f}, {hundred:.2f} and {hundreds:.2f} nats below the entropy of the byte "
    "frequencies after 300 updates. So very deep pre-norm models do train. From update 100 on the "
    "loss of 200 layers rises by {jump:.2f} nats at most between two means of five updates, that "
    "of 12 by {shallow_jump:.2f} on the same batches. Over the last 50 "
    "updates the training loss of 200 layers is {behind:.2f} nats above that of 12. Before "
    "training two tokens have a mean cosine of {alike_hundreds:.2f} at 200 layers and of "
    "{alike_shallow:.2f} at 12: the deep model begins with tokens that are more alike.",
    checks=(
        trains("hundred", "claim", "gain of pre-norm, 96 layers"),
        trains("hundreds", "claim", "gain of pre-norm, 200 layers"),
        Check(
            "excess", "claim", "at most", 0.25,
            label="largest rise of the loss, 200 layers minus 12",
            because="The batches are the same; a quarter of a nat is what five of them differ by.",
        ),
    ),
    seconds=0.01,
    needs=(SHALLOW, HUNDRED, HUNDREDS),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Gains by depth, and how the loss of 200 layers goes beside that of 12 on the same batches."""
    runs = {
        "12 layers": trials[SHALLOW.name],
        "96 layers": trials[HUNDRED.name],
        "200 layers": trials[HUNDREDS.name],
    }
    shallow, hundred, hundreds = map(gain, runs.values())
    deep, beside = (curve(trials[one.name])[1][-LAST:] for one in (HUNDREDS, SHALLOW))
    behind = (sum(deep) - sum(beside)) / LAST
    jump, shallow_jump = (_largest_rise(trials[one.name]) for one in (HUNDREDS, SHALLOW))
    return Measured(
        {
            "shallow": shallow,
            "hundred": hundred,
            "hundreds": hundreds,
            "behind": behind,
            "jump": jump,
            "shallow_jump": shallow_jump,
            "excess": jump - shallow_jump,
            "alike_shallow": cosines(trials[SHALLOW.name])[0],
            "alike_hundreds": cosines(trials[HUNDREDS.name])[0],
        },
        losses(runs),
    )


def _largest_rise(found: Mapping[str, Any]) -> float:
    """The largest rise between two neighbouring points of the curve, after the first updates."""
    steps, values = curve(found)
    late = [value for step, value in zip(steps, values, strict=True) if step >= AFTER]
    return max(b - a for a, b in pairwise(late))
