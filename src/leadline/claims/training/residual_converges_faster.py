"""Networks with residual connections converge faster.

The textbook names faster convergence as a gain of the residual form. Compared where both train:
pre-norm Transformers of 2 and 3 layers, with and without skip, otherwise the same. The number is
the update from which on the model trains (held-out loss, read every 20 updates), without skip over
with skip; where the one without skip never does, all of its updates count, so the number is then
too small. The reach is the same sentence for a residual form that the notes draw too, post-norm,
beside no skip at 6 layers: there the one trains and the other does not, so gains are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check
from leadline.claims.training._cells import cell, gain, slower
from leadline.claims.training._pictures import losses

SKIP_2, NONE_2 = cell("pre", 2), cell("no skip", 2, steps=600)
SKIP_3, NONE_3 = cell("pre", 3), cell("no skip", 3, steps=600)
POST_6, NONE_6 = cell("post", 6), cell("no skip", 6)
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
    correction="",
    why="With 2 layers the network without skip needs {two:.1f} times as many updates as the one "
    "with skip until its held-out loss is 0.3 nats below the entropy of the byte frequencies; "
    "with 3 layers at least {three:.1f} times. The batches are the same. At 6 layers post-norm, "
    "which has a skip too, ends {post:.2f} nats lower than the network without skip after as many "
    "updates.",
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
            "post", "reach", "at least", 0.3,
            label="gain of post-norm minus that without skip, 6 layers",
            because="0.3 nats are the margin between a model that trains and one that does not.",
        ),
    ),
    seconds=0.01,
    needs=(SKIP_2, NONE_2, SKIP_3, NONE_3, POST_6, NONE_6),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """How many updates each form needs."""
    runs = {
        "2 layers, skip": trials[SKIP_2.name],
        "2 layers, no skip": trials[NONE_2.name],
        "3 layers, skip": trials[SKIP_3.name],
        "3 layers, no skip": trials[NONE_3.name],
    }
    return Measured(
        {
            "two": slower(trials[NONE_2.name], trials[SKIP_2.name]),
            "three": slower(trials[NONE_3.name], trials[SKIP_3.name]),
            "post": gain(trials[POST_6.name]) - gain(trials[NONE_6.name]),
        },
        losses(runs),
    )
