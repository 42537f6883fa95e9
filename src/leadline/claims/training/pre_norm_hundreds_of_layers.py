"""Pre-norm Transformers train at a hundred layers and more, without warm-up.

The talk says 96 layers and more, the summary that it works very well even at 100 and more, the
card 100 and more, the textbook hundreds without instability. The claim is 96 and 200 layers,
without warm-up. "Very well" and "without instability" would make depth free: the reach is that 200
layers reach in their steps what 12 reach in as many, to within 0.05 nats.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.analysis.claim import Check
from leadline.claims._entry import Measured, claim
from leadline.claims.training._cells import cell, cosines, curve, gain, trains
from leadline.claims.training._pictures import losses

SHALLOW, HUNDRED = cell("pre", 12), cell("pre", 96)
HUNDREDS = cell("pre", 200)
LAST = 10
"""Points of a curve whose mean is compared: 50 updates."""


@claim(
    "pre-norm-hundreds-of-layers",
    group="training",
    notes=("shortcuts", "summary", "textbook", "card", "deep-dive"),
    title="Pre-norm Transformers train at a hundred layers and more",
    formula=r"x_{l+1} = x_l + F(\mathrm{LN}(x_l)), \quad L \geq 100",
    plain="x + F(LN(x)) trains for L ≥ 100",
    says="With pre-norm, Transformers of 96, of more than 100, even of hundreds of layers train "
    "well and without instability.",
    correction="They train at 200 layers without warm-up. Depth is not free: in as many updates "
    "the deep model is behind the shallow one.",
    why="Models of 12, 96 and 200 layers were trained alike, without warm-up. They end "
    "{shallow:.2f}, {hundred:.2f} and {hundreds:.2f} nats below the entropy of the byte "
    "frequencies after 300 updates. So very deep pre-norm models do train. Over the last 50 "
    "updates the training loss of 200 layers is {behind:.2f} nats above that of 12. Before "
    "training two tokens have a mean cosine of {alike_hundreds:.2f} at 200 layers and of "
    "{alike_shallow:.2f} at 12: the deep model begins with tokens that are more alike.",
    checks=(
        trains("hundred", "claim", "gain of pre-norm, 96 layers"),
        trains("hundreds", "claim", "gain of pre-norm, 200 layers"),
        Check(
            "behind", "reach", "at most", 0.05,
            label="training loss, 200 layers minus 12, over the last 50 updates",
            because="Both see the same batches, so a difference of their means over 50 updates is "
            "their own; below 0.05 nats it would not be seen in a curve.",
        ),
        Check(
            "lag", "correction", "at least", 0.0, label="gain of 12 layers minus that of 200",
            because="Behind is any distance: both are judged by the same held-out examples.",
        ),
    ),
    seconds=0.01,
    needs=(SHALLOW, HUNDRED, HUNDREDS),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Gains by depth, and how far 200 layers are behind 12 on the same batches."""
    runs = {
        "12 layers": trials[SHALLOW.name],
        "96 layers": trials[HUNDRED.name],
        "200 layers": trials[HUNDREDS.name],
    }
    shallow, hundred, hundreds = map(gain, runs.values())
    deep, beside = (curve(trials[one.name])[1][-LAST:] for one in (HUNDREDS, SHALLOW))
    behind = (sum(deep) - sum(beside)) / LAST
    return Measured(
        {
            "shallow": shallow,
            "hundred": hundred,
            "hundreds": hundreds,
            "behind": behind,
            "lag": shallow - hundreds,
            "alike_shallow": cosines(trials[SHALLOW.name])[0],
            "alike_hundreds": cosines(trials[HUNDREDS.name])[0],
        },
        losses(runs),
    )
