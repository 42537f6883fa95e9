"""Post-norm is almost untrainable at a hundred layers and more.

The talk says so of models of 70 billion parameters and more than 100 layers. The parameters cannot
be had here; the depth can: 96 layers. The claim is post-norm as the talk writes it. The reach is
DeepNorm, N(a x + F(x)) with a constant a: the norm stands in the same place (Wang et al. 2022,
arXiv 2203.00555).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.training._cells import cell, gain, stuck, trains
from leadline.claims.training._pictures import losses

POST, DEEPNORM, PRE = cell("post", 96), cell("deepnorm", 96), cell("pre", 96)


@claim(
    "post-norm-untrainable-at-hundred",
    group="training",
    notes=("shortcuts",),
    title="Post-norm is almost untrainable at a hundred layers",
    formula=r"x_{l+1} = \mathrm{LN}(x_l + F(x_l)), \quad L \geq 100",
    plain="LN(x + F(x)) does not train for L ≥ 100",
    says="For models of more than 100 layers post-norm is almost untrainable, which is why nearly "
    "all large models use pre-norm.",
    correction="Plain post-norm is stuck at 96 layers. With the skip weighted by "
    r"$(2L)^{1/4}$ and smaller initial weights (DeepNorm) it trains, with its norms after the "
    "addition as before.",
    why="At 96 layers, without warm-up and at one learning rate, post-norm gains {post:.2f} nats "
    "over the entropy of the byte frequencies, DeepNorm {deepnorm:.2f}, pre-norm {pre:.2f}. The "
    "place of the norm is not what decides: DeepNorm keeps it and trains, because each update is "
    "small beside the stream.",
    checks=(
        stuck("post", "claim", "gain of post-norm, 96 layers"),
        stuck("deepnorm", "reach", "gain of DeepNorm, 96 layers"),
        trains("deepnorm_gain", "correction", "gain of DeepNorm, 96 layers, again"),
        trains("pre", "correction", "gain of pre-norm, 96 layers"),
    ),
    source="Wang et al. 2022, arXiv 2203.00555",
    seconds=0.01,
    needs=(POST, DEEPNORM, PRE),
)
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Gains at 96 layers."""
    runs = {
        "post-norm": trials[POST.name],
        "DeepNorm": trials[DEEPNORM.name],
        "pre-norm": trials[PRE.name],
    }
    post, deepnorm, pre = map(gain, runs.values())
    numbers = {"post": post, "deepnorm": deepnorm, "deepnorm_gain": deepnorm, "pre": pre}
    return Measured(numbers, losses(runs))
