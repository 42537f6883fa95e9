"""Networks with residual connections converge faster.

The textbook names faster convergence as a gain of the residual form. Compared where both train:
pre-norm Transformers of 2 and 3 layers, with and without skip, otherwise the same. The number is
the update from which on the model trains (held-out loss, read every 20 updates), without skip over
with skip; where the one without skip never does, all of its updates count, so the number is then
too small. The reach is the first part of the way alone, 0.1 nats below the unigram entropy, where
a model leaves the frequencies behind; and the same sentence for a residual form that the notes
draw too, post-norm, at 12 layers beside 2 layers without skip.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.analysis.claim import Check
from leadline.claims._entry import Measured, claim
from leadline.claims.training._cells import STUCK, cell, gain, slower, trains
from leadline.claims.training._pictures import losses

SKIP_2, NONE_2 = cell("pre", 2), cell("no skip", 2, steps=600)
SKIP_3, NONE_3 = cell("pre", 3), cell("no skip", 3, steps=600)
POST = cell("post", 12)
FASTER = (
    "Faster is read as at least 1.2 times as fast: the loss is read every 20 updates, so two "
    "equal runs of some 200 updates may differ by a tenth."
)


@claim(
    "residual-converges-faster",
    group="training",
    notes=("textbook", "shortcuts"),
    title="Networks with residual connections converge faster",
    formula=r"\text{steps}(x + F(x)) < \text{steps}(F(x))",
    plain="x + F(x) needs fewer steps than F(x)",
    says="The residual form is easier to optimise and converges faster.",
    correction="With pre-norm it does, where both forms train at all. A skip alone is no "
    "guarantee: post-norm of 12 layers has one and does not get as far as 2 layers without.",
    why="With 2 layers the network without skip needs {two:.1f} times as many updates as the one "
    "with skip until its held-out loss is 0.3 nats below the entropy of the byte frequencies; "
    "with 3 layers at least {three:.1f} times. Until the first 0.1 nats are gained it is "
    "{early_two:.1f} and {early_three:.1f} times. The batches are the same. Post-norm of 12 "
    "layers has a skip in every sublayer and ends {post:.2f} nats below that entropy.",
    checks=(
        Check(
            "two", "claim", "at least", 1.2, label="updates without skip over with, 2 layers",
            because=FASTER,
        ),
        Check(
            "three", "claim", "at least", 1.2, label="updates without skip over with, 3 layers",
            because=FASTER,
        ),
        Check(
            "early", "reach", "at least", 1.2,
            label="updates until 0.1 nats are gained, without skip over with, the smaller of 2 "
            "and 3 layers",
            because=FASTER,
        ),
        trains("post", "reach", "gain of post-norm, 12 layers"),
        trains("without", "correction", "gain of 2 layers without skip, 600 updates"),
    ),
    seconds=0.01,
    needs=(SKIP_2, NONE_2, SKIP_3, NONE_3, POST),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """How many updates each form needs."""
    runs = {
        "2 layers, skip": trials[SKIP_2.name],
        "2 layers, no skip": trials[NONE_2.name],
        "3 layers, skip": trials[SKIP_3.name],
        "3 layers, no skip": trials[NONE_3.name],
    }
    early = [
        slower(trials[none.name], trials[skip.name], below=STUCK)
        for none, skip in ((NONE_2, SKIP_2), (NONE_3, SKIP_3))
    ]
    return Measured(
        {
            "two": slower(trials[NONE_2.name], trials[SKIP_2.name]),
            "three": slower(trials[NONE_3.name], trials[SKIP_3.name]),
            "early_two": early[0],
            "early_three": early[1],
            "early": min(early),
            "without": gain(trials[NONE_2.name]),
            "post": gain(trials[POST.name]),
        },
        losses(runs),
    )
