"""Is a norm mandatory where updates are added to a stream?

The summary says that without norms variance grows and activations may explode, and concludes
that normalisation is mandatory: read as "no residual network without norms trains". One that does
is a counterexample. With updates weighted by 1/sqrt(2 L) the mean square of the stream stays of
order 1 at any depth (Noci et al. 2022, arXiv 2206.03126), and with weights that start at 0 the
stream starts as the identity (Bachlechner et al. 2020, arXiv 2003.04887).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.training._cells import cell, gain, stuck, trains
from leadline.claims.training._pictures import losses

BARE, WEIGHTED = cell("no norm", 12), cell("weighted, no norm", 24)
REZERO, PRE = cell("rezero", 24), cell("pre", 24)


@claim(
    "normalisation-is-mandatory",
    group="training",
    notes=("summary",),
    title="A residual network needs normalisation",
    formula=r"x_{l+1} = x_l + F_l(x_l) \; \Rightarrow \; \text{norms are mandatory}",
    plain="x + F(x) without norms does not train",
    says="Adding updates without normalisation lets the variance grow, shifts the mean and may "
    "make activations explode; hence LayerNorm or RMSNorm is mandatory.",
    correction="Something must keep the updates small beside the stream. A norm does, and so "
    r"does a weight $1/\sqrt{2L}$ on every update or a learned weight that starts at 0.",
    why="The plain sum without norms learns nothing at 12 layers: it gains {bare:.2f} nats over "
    "the entropy of the byte frequencies. But 24 layers whose updates are divided by "
    r"$\sqrt{2L}$, without a single norm anywhere, gain {weighted:.2f} nats; the same "
    "depth with pre-norm gains {pre:.2f}. ReZero, with one norm before the output alone, "
    "gains {rezero:.2f}. The reason the note gives is right; what follows from it is that "
    "the updates need a scale, not that they need a norm.",
    checks=(
        stuck("weighted", "claim", "gain without any norm, updates / √(2L), 24 layers"),
        stuck("bare", "correction", "gain of the plain sum without norms, 12 layers"),
        trains("weighted_gain", "correction", "gain without any norm, updates / √(2L), again"),
        trains("rezero", "correction", "gain of ReZero, 24 layers"),
    ),
    source="Noci et al. 2022, arXiv 2206.03126; Bachlechner et al. 2020, arXiv 2003.04887",
    seconds=0.01,
    needs=(BARE, WEIGHTED, REZERO, PRE),
)
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Gains without norms, and with them."""
    runs = {
        "plain sum, 12 layers": trials[BARE.name],
        "no norm, weighted, 24 layers": trials[WEIGHTED.name],
        "ReZero, 24 layers": trials[REZERO.name],
        "pre-norm, 24 layers": trials[PRE.name],
    }
    bare, weighted, rezero, pre = map(gain, runs.values())
    numbers = {"bare": bare, "weighted": weighted, "rezero": rezero, "pre": pre}
    return Measured({**numbers, "weighted_gain": weighted}, losses(runs))
