"""LayerNorm speeds up convergence.

The deep dive says so of LayerNorm beside attention and residuals. The claim is pre-norm beside the
same residual network without norms in its layers, at 3 layers, where both train: the update from
which on the model trains (held-out loss, read every 20 updates), without norms over with. The reach
is the comparison with a network that has no norm and updates weighted by 1/sqrt(2 L), at 24
layers: if norms as such were what is fast, that one would be slower too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check
from leadline.claims.training._cells import cell, slower, stuck
from leadline.claims.training._cells import gain as gain_of
from leadline.claims.training._pictures import losses

NORMS, BARE = cell("pre", 3), cell("no norm", 3)
DEEP, WEIGHTED, BARE_DEEP = cell("pre", 24), cell("weighted, no norm", 24), cell("no norm", 12)
FASTER = (
    "Faster is read as at least 1.2 times as fast: the loss is read every 20 updates, so two "
    "equal runs of some 200 updates may differ by a tenth."
)


@claim(
    "layernorm-speeds-convergence",
    group="training",
    notes=("deep-dive",),
    title="LayerNorm speeds up convergence",
    formula=r"\text{steps}(x + F(\mathrm{LN}(x))) < \text{steps}(x + F(x))",
    plain="x + F(LN(x)) needs fewer steps than x + F(x)",
    says="LayerNorm reduces the drift of scales and speeds up convergence in networks with "
    "attention and residuals.",
    correction="Beside the plain sum it does. Where the updates are scaled with depth instead, a "
    "network without any norm is no slower.",
    why="At 3 layers the plain residual sum without norms needs {bare:.1f} times as many updates "
    "as pre-norm until its held-out loss is 0.3 nats below the entropy of the byte frequencies; "
    "at 12 layers it learns nothing more than these frequencies (a gain of {bare_deep:.2f}). At 24 "
    "layers updates "
    r"divided by $\sqrt{2L}$, without any norm, need {weighted:.2f} times as many updates as "
    "pre-norm. What a norm contributes to speed here is scale, and scale can be had otherwise.",
    checks=(
        Check(
            "bare", "claim", "at least", 1.2,
            label="updates without norms over with, 3 layers", because=FASTER,
        ),
        Check(
            "weighted", "reach", "at least", 1.2,
            label="updates without norms, weighted, over pre-norm, 24 layers", because=FASTER,
        ),
        Check(
            "weighted_again", "correction", "at most", 1.0,
            label="the same, again", because="No slower is as many updates or fewer.",
        ),
        stuck("bare_deep", "correction", "gain of the plain sum without norms, 12 layers"),
    ),
    source="Noci et al. 2022, arXiv 2206.03126, for the weight",
    seconds=0.01,
    needs=(NORMS, BARE, DEEP, WEIGHTED, BARE_DEEP),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """How many updates are needed with norms and without."""
    runs = {
        "pre-norm, 3 layers": trials[NORMS.name],
        "no norms, 3 layers": trials[BARE.name],
        "pre-norm, 24 layers": trials[DEEP.name],
        "no norm, weighted, 24 layers": trials[WEIGHTED.name],
    }
    weighted = slower(trials[WEIGHTED.name], trials[DEEP.name])
    return Measured(
        {
            "bare": slower(trials[BARE.name], trials[NORMS.name]),
            "weighted": weighted,
            "weighted_again": weighted,
            "bare_deep": gain_of(trials[BARE_DEEP.name]),
        },
        losses(runs),
    )
