"""Post-norm needs warm-up.

The summary's table says: requires warm-up, yes. That is a word about what happens without: the
claim is that 12 layers at the rate of all runs stick without warm-up. The talk says that deep
post-norm is hard to warm up: 24 layers stick with a warm-up too. The reach is where a reader
would carry it: fewer layers, and a smaller rate instead of a warm-up. How far a warm-up gets 12
layers is told and decides nothing: it differs much between seeds (see `_cells`). So does a
smaller rate, of which no more is asked than that the model leaves the frequencies behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.training._cells import cell, gain, leaves, stuck
from leadline.claims.training._pictures import losses

COLD, WARM = cell("post", 12), cell("post", 12, steps=600, warmup=300)
SLOW = cell("post", 12, steps=900, rate=3e-4)
SHALLOW = cell("post", 6)
WARM_DEEP = cell("post", 24, steps=600, warmup=300)


@claim(
    "post-norm-needs-warmup",
    group="training",
    notes=("shortcuts", "summary"),
    title="Post-norm needs warm-up",
    formula=r"x_{l+1} = \mathrm{LN}(x_l + F(x_l)): \quad \text{warm-up required}",
    plain="LN(x + F(x)) needs warm-up",
    says="Post-norm requires a warm-up of the learning rate, and is hard to warm up.",
    correction="At 12 layers and this rate it sticks without. None is needed at 6 layers, and "
    "at 12 a rate of 0.0003 gets away from the frequencies without one; at 24 layers a warm-up of "
    "300 updates is not enough.",
    why="Post-norm of 12 layers at a rate of 0.001 gains {cold:.2f} nats over the entropy of the "
    "byte frequencies without warm-up: it has learned those alone. With 300 of 600 updates of "
    "warm-up it gains {warm:.2f} on average, with large differences between seeds. But "
    "without any warm-up 6 layers gain {shallow:.2f}, and 12 layers at a third of the rate, "
    "in 900 updates, {slow:.2f}, with differences as large. So a warm-up is one remedy of "
    "several, and no sure one. At 24 layers it is too little: {warm_deep:.2f}.",
    checks=(
        stuck("cold", "claim", "gain of 12 layers without warm-up"),
        stuck("hard", "claim", "gain of 24 layers with warm-up"),
        stuck("shallow", "reach", "gain of 6 layers without warm-up"),
        stuck("slow", "reach", "gain of 12 layers, rate 0.0003, without warm-up"),
        leaves("slow_gain", "correction", "gain of 12 layers, rate 0.0003, again"),
        stuck("warm_deep", "correction", "gain of 24 layers with warm-up, again"),
    ),
    source="Xiong et al. 2020, arXiv 2002.04745, on warm-up and the placement of norms",
    seconds=0.01,
    needs=(COLD, WARM, SLOW, SHALLOW, WARM_DEEP),
)
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Gains of post-norm with and without warm-up."""
    runs = {
        "cold": trials[COLD.name],
        "warm": trials[WARM.name],
        "slow": trials[SLOW.name],
        "shallow": trials[SHALLOW.name],
        "warm_deep": trials[WARM_DEEP.name],
    }
    labels = (
        "12 layers", "12 layers, warm-up", "12 layers, rate 0.0003", "6 layers",
        "24 layers, warm-up",
    )  # fmt: skip
    picture = losses(dict(zip(labels, runs.values(), strict=True)))
    gains = {name: gain(found) for name, found in runs.items()}
    return Measured({**gains, "slow_gain": gains["slow"], "hard": gains["warm_deep"]}, picture)
