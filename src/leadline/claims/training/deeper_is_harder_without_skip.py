"""Without shortcuts a network is the harder to train the deeper it is.

Transformers without skip, with norms, of 2, 3 and 6 layers, on the same batches. The loss after as
many updates should rise with every step in depth. 2 and 3 layers get 600 updates and 6 get 600
with warm-up, which is to their advantage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check
from leadline.claims.training._cells import cell, gain
from leadline.claims.training._pictures import losses

TWO, THREE = cell("no skip", 2, steps=600), cell("no skip", 3, steps=600)
SIX = cell("no skip", 6, steps=600, warmup=300)
HARDER = (
    "0.05 nats are more than the gain of a run differs by between seeds, and less than a sixth "
    "of what counts as training."
)


@claim(
    "deeper-is-harder-without-skip",
    group="training",
    notes=("shortcuts", "textbook"),
    title="Without shortcuts a deeper network is harder to train",
    formula=r"x_{l+1} = F(\mathrm{LN}(x_l)): \quad L_1 < L_2 \Rightarrow "
    r"\text{loss}(L_1) < \text{loss}(L_2)",
    plain="F(LN(x)): the deeper, the higher the loss",
    says="Without shortcuts a network is the harder to train the deeper it is.",
    correction="",
    why="Transformers without skip were trained for 600 updates. They gain {two:.2f} (2 layers), "
    "{three:.2f} (3) and {six:.2f} nats (6, with warm-up) over the entropy of the byte "
    "frequencies. The last has learned little more than these.",
    checks=(
        Check(
            "two_over_three", "claim", "at least", 0.05,
            label="gain of 2 layers minus that of 3", because=HARDER,
        ),
        Check(
            "three_over_six", "claim", "at least", 0.05,
            label="gain of 3 layers minus that of 6", because=HARDER,
        ),
    ),
    seconds=0.01,
    needs=(TWO, THREE, SIX),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Gains without skip by depth."""
    runs = {
        "2 layers": trials[TWO.name],
        "3 layers": trials[THREE.name],
        "6 layers, warm-up": trials[SIX.name],
    }
    two, three, six = map(gain, runs.values())
    return Measured(
        {
            "two": two,
            "three": three,
            "six": six,
            "two_over_three": two - three,
            "three_over_six": three - six,
        },
        losses(runs),
    )
