"""Post-norm is bad beyond 12 layers.

The summary's table says: stability bad at a depth above 12 layers. The claim is 24 layers with the
settings of all runs (rate 1e-3, no warm-up). A reader takes from it that 12 layers are fine, and
that nothing helps beyond: the reach is post-norm at 12 layers, and DeepNorm, which has its norms
after the addition too (Wang et al. 2022, arXiv 2203.00555), at 96.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.training._cells import cell, gain, leaves, stuck, trains
from leadline.claims.training._pictures import losses

SIX, TWELVE, DEEP = cell("post", 6), cell("post", 12), cell("post", 24)
SLOW, DEEPNORM = cell("post", 12, steps=900, rate=3e-4), cell("deepnorm", 96)


@claim(
    "post-norm-bad-beyond-twelve",
    group="training",
    notes=("summary",),
    title="Post-norm trains badly beyond 12 layers",
    formula=r"x_{l+1} = \mathrm{LN}(x_l + F(x_l)), \quad L > 12",
    plain="LN(x + F(x)) is bad for L > 12",
    says="Post-norm is unstable in networks of more than 12 layers.",
    correction="There is no fixed depth. At this learning rate without warm-up 6 layers train and "
    "12 are stuck; at a rate of 0.0003 12 get away from the frequencies; with a larger weight on "
    "the skip and smaller initial weights (DeepNorm) 96 train, with the norm in the same place.",
    why="All runs are equal but for depth and rate; numbers are gains in nats over the entropy of "
    "the byte frequencies. Post-norm: {six:.2f} at 6 layers, {twelve:.2f} at 12, {deep:.2f} at 24. "
    "At a rate of 0.0003, in 900 updates, 12 layers reach {slow:.2f}. DeepNorm at 96 layers "
    "reaches {deepnorm:.2f}. So deep post-norm does stick, and it sticks at 12 layers already "
    "where nothing is done about it; how deep it can be depends on rate and scale.",
    checks=(
        stuck("deep", "claim", "gain of post-norm, 24 layers"),
        trains("twelve", "reach", "gain of post-norm, 12 layers"),
        stuck("deepnorm", "reach", "gain of DeepNorm, 96 layers"),
        stuck("twelve_gain", "correction", "gain of post-norm, 12 layers, again"),
        trains("deepnorm_gain", "correction", "gain of DeepNorm, 96 layers, again"),
        trains("six", "correction", "gain of post-norm, 6 layers"),
        leaves("slow", "correction", "gain of post-norm, 12 layers, rate 0.0003"),
    ),
    source="Wang et al. 2022, arXiv 2203.00555, for DeepNorm",
    seconds=0.01,
    needs=(SIX, TWELVE, DEEP, SLOW, DEEPNORM),
)
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Gains of norms after the addition, by depth."""
    runs = {
        "six": trials[SIX.name],
        "twelve": trials[TWELVE.name],
        "deep": trials[DEEP.name],
        "slow": trials[SLOW.name],
        "deepnorm": trials[DEEPNORM.name],
    }
    labels = ("6 layers", "12 layers", "24 layers", "12 layers, rate 0.0003", "DeepNorm, 96 layers")
    picture = losses(dict(zip(labels, runs.values(), strict=True)))
    gains = {name: gain(found) for name, found in runs.items()}
    again = {f"{name}_gain": gains[name] for name in ("twelve", "deepnorm")}
    return Measured({**gains, **again}, picture)
