"""Pre-norm needs no warm-up.

The summary's table says: requires warm-up, no; the talk, more carefully, not so long a warm-up.
The claim is pre-norm without warm-up at the rate at which post-norm of the same depth sticks. The
reach is a large rate, with and without warm-up: a property of pre-norm would hold there too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.training._cells import cell, gain, stuck, trains
from leadline.claims.training._pictures import losses

COLD, DEEP = cell("pre", 12), cell("pre", 24)
POST = cell("post", 12)
FAST = cell("pre", 12, steps=200, rate=3e-2)
FAST_WARM = cell("pre", 12, steps=200, warmup=100, rate=3e-2)


@claim(
    "pre-norm-needs-no-warmup",
    group="training",
    notes=("shortcuts", "summary"),
    title="Pre-norm needs no warm-up",
    formula=r"x_{l+1} = x_l + F(\mathrm{LN}(x_l)): \quad \text{no warm-up}",
    plain="x + F(LN(x)) needs no warm-up",
    says="Pre-norm trains without warm-up, or with a much shorter one than post-norm.",
    correction="At rates at which post-norm sticks, pre-norm trains without warm-up. At a rate "
    "thirty times larger it needs one too.",
    why="Without warm-up at a rate of 0.001, pre-norm gains {cold:.2f} nats over the entropy of "
    "the byte frequencies at 12 layers and {deep:.2f} at 24; post-norm of 12 layers {post:.2f}. "
    "At a rate of 0.03 pre-norm of 12 layers gains {fast:.2f} without warm-up and "
    "{fast_warm:.2f} with a warm-up of 100 of 200 updates. So pre-norm stands larger first "
    "updates, not any.",
    checks=(
        trains("cold", "claim", "gain of 12 layers without warm-up"),
        trains("deep", "claim", "gain of 24 layers without warm-up"),
        trains("fast", "reach", "gain of 12 layers, rate 0.03, without warm-up"),
        stuck("post", "correction", "gain of post-norm, 12 layers, without warm-up"),
        trains("fast_warm", "correction", "gain of 12 layers, rate 0.03, with warm-up"),
    ),
    source="Xiong et al. 2020, arXiv 2002.04745",
    seconds=0.01,
    needs=(COLD, DEEP, POST, FAST, FAST_WARM),
)
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Gains of pre-norm at two rates, with and without warm-up."""
    runs = {
        "cold": trials[COLD.name],
        "deep": trials[DEEP.name],
        "post": trials[POST.name],
        "fast": trials[FAST.name],
        "fast_warm": trials[FAST_WARM.name],
    }
    labels = (
        "12 layers", "24 layers", "post-norm, 12 layers", "12 layers, rate 0.03",
        "12 layers, rate 0.03, warm-up",
    )  # fmt: skip
    picture = losses(dict(zip(labels, runs.values(), strict=True)))
    return Measured({name: gain(found) for name, found in runs.items()}, picture)
