"""Without a residual connection a model trains only with an aggressive warm-up and other crutches.

The claim: without skip, without warm-up, 6 layers are stuck. What the sentence leads a reader to
expect is the reach: that a long warm-up makes them train, and that no depth trains without one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check
from leadline.claims.training._cells import TRAINS, cell, cosines, gain, stuck, trains
from leadline.claims.training._pictures import losses

COLD, WARM = cell("no skip", 6), cell("no skip", 6, steps=600, warmup=300)
TWO = cell("no skip", 2, steps=600)


@claim(
    "no-skip-needs-warmup",
    group="training",
    notes=("summary",),
    title="Without a skip a model trains only with aggressive warm-up",
    formula=r"x_{l+1} = F(\mathrm{LN}(x_l)): \quad \text{only with warm-up}",
    plain="F(LN(x)) trains only with aggressive warm-up",
    says="Without residual connections the model does not learn unless an aggressive warm-up and "
    "other crutches help it.",
    correction="Two layers learn without any warm-up. At 6 layers a warm-up over half of the "
    "updates does not make the model train.",
    why="Without skip, with norms, 6 layers gain {cold:.2f} nats over the entropy of the byte "
    "frequencies without warm-up and {warm:.2f} with 300 of 600 updates of it. Two layers without "
    "warm-up gain {two:.2f}. Before the first update the mean cosine of two tokens is "
    "{alike:.3f} at 6 layers: the tokens are one vector from the start, whatever the rate.",
    checks=(
        stuck("cold", "claim", "gain of 6 layers without warm-up"),
        trains("warm", "reach", "gain of 6 layers with warm-up"),
        stuck("two", "reach", "gain of 2 layers without warm-up"),
        Check(
            "warm_gain", "correction", "at most", TRAINS,
            label="gain of 6 layers with warm-up, again",
            because="Does not train means less than 0.3 nats below the unigram entropy.",
        ),
        trains("two_gain", "correction", "gain of 2 layers without warm-up, again"),
    ),
    seconds=0.01,
    needs=(COLD, WARM, TWO),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Gains without skip, with and without warm-up."""
    runs = {"cold": trials[COLD.name], "warm": trials[WARM.name], "two": trials[TWO.name]}
    labels = ("6 layers", "6 layers, warm-up", "2 layers")
    picture = losses(dict(zip(labels, runs.values(), strict=True)))
    gains = {name: gain(found) for name, found in runs.items()}
    again = {"warm_gain": gains["warm"], "two_gain": gains["two"]}
    again["alike"] = cosines(trials[COLD.name])[0]
    return Measured({**gains, **again}, picture)
