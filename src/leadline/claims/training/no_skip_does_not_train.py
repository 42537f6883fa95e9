"""Without shortcuts deep Transformers do not train.

The talk says that without shortcuts GPT would not be as deep and Transformers hard to train; the
card that residuals are essential with dozens or hundreds of layers, the summary that a model
without them degrades. The claim is two dozen layers with norms and without skip, beside the same
with skip. The talk's other word, that BERT might have blown up, is the reach: that the trouble is
an explosion. A run that blows up has a loss that is no number, or far above that of the
frequencies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check
from leadline.claims.training._cells import cell, cosines, curve, gain, stuck, trains
from leadline.claims.training._pictures import losses

SIX, DEEP = cell("no skip", 6), cell("no skip", 24)
SKIP_SIX, SKIP = cell("pre", 6), cell("pre", 24)
LAST = 10
"""Points of a curve whose mean is taken: 50 updates."""


@claim(
    "no-skip-does-not-train",
    group="training",
    notes=("shortcuts", "summary", "card"),
    title="Without shortcuts deep Transformers do not train",
    formula=r"x_{l+1} = F(\mathrm{LN}(x_l)), \quad L \geq 24",
    plain="F(LN(x)) does not train at 24 layers",
    says="Residual connections are essential for Transformers with dozens or hundreds of layers; "
    "without them GPT would not be as deep, and BERT might have blown up.",
    correction="They are stuck, not blown up: the loss stays at that of the byte frequencies.",
    why="Without skip, with norms, 6 layers gain {six:.2f} and 24 layers {deep:.2f} nats over the "
    "entropy of the byte frequencies; with skip {skip_six:.2f} and {skip:.2f}. The mean training "
    "loss of the last 50 updates is {above:.2f} nats above that entropy without skip at 24 "
    "layers: nothing explodes. The mean cosine of two tokens is {alike:.4f} there, and a model "
    "whose tokens are one vector can learn how often each byte comes and no more.",
    checks=(
        stuck("six", "claim", "gain without skip, 6 layers"),
        stuck("deep", "claim", "gain without skip, 24 layers"),
        trains("skip", "claim", "gain with skip, 24 layers"),
        Check(
            "above", "reach", "at least", 1.0,
            label="training loss above the unigram entropy, no skip, 24 layers",
            because="Blown up is read as a loss at least one nat above that of the frequencies.",
        ),
        Check(
            "apart", "correction", "at most", 0.1,
            label="training loss from the unigram entropy, no skip, 24 layers",
            because="Stuck means within 0.1 nats of the entropy; 50 batches differ by less.",
        ),
    ),
    source="Dong, Cordonnier and Loukas 2021, arXiv 2103.03404, on attention without skip",
    seconds=0.01,
    needs=(SIX, DEEP, SKIP_SIX, SKIP),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Gains with and without skip."""
    runs = {
        "no skip, 6 layers": trials[SIX.name],
        "no skip, 24 layers": trials[DEEP.name],
        "skip, 6 layers": trials[SKIP_SIX.name],
        "skip, 24 layers": trials[SKIP.name],
    }
    six, deep, skip_six, skip = map(gain, runs.values())
    late = curve(trials[DEEP.name])[1][-LAST:]
    above = sum(late) / len(late) - float(trials[DEEP.name]["unigram"])
    numbers = {"six": six, "deep": deep, "skip_six": skip_six, "skip": skip, "above": above}
    numbers |= {"apart": abs(above), "alike": cosines(trials[DEEP.name])[1]}
    return Measured(numbers, losses(runs))
