"""An adapter may not manage to compensate the main signal of the residual.

The summary lists it under "when a residual hinders", so the residual must be the reason. Share is
how far bottleneck adapters lower the loss of a new task over how far all weights do. The claim: the
share falls where the residual is stronger (weight 4 beside 1), by a tenth at least. That adapters
do not reach all weights is true of both and is the corrected statement.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check
from leadline.claims.training._tuning import ADAPTERS, DESIGNS, STRONG


@claim(
    "adapters-cannot-keep-up",
    group="training",
    notes=("summary",),
    title="Because of the residual an adapter cannot keep up",
    formula=r"x_{l+1} = r\, x_l + A(F(x_l))",
    plain="x' = r x + A(F(x)): the adapter A is drowned by r x",
    says="In adapter tuning the residual can hinder: the adapter may not manage to compensate the "
    "main signal.",
    correction="Adapters learn less than all weights do, with a strong residual and with a plain "
    "one alike: the strength of the residual is not the reason.",
    why="Bottleneck adapters of 4 features lower the loss of a new task by a share of what "
    "training all weights does. In pre-norm the share is {pre_plain:.2f} with residual weight 1 "
    "and {pre_strong:.2f} with weight 4; in post-norm {post_plain:.2f} and {post_strong:.2f}. A "
    "residual four times as strong does not make it smaller.",
    checks=(
        Check(
            "drop", "claim", "at least", 0.1, over="mean",
            label="share of adapters, weight 1 minus weight 4, mean of two designs",
            because="A tenth of what can be learned would be a hindrance; over seeds the "
            "difference varies by a few hundredths.",
        ),
        Check(
            "largest", "correction", "at most", 0.9,
            label="largest share of adapters of four cases",
            because="Less is read as a tenth less at least.",
        ),
    ),
    source="Houlsby et al. 2019, arXiv 1902.00751, for adapters",
    seconds=0.001,
    needs=(ADAPTERS,),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """The share of adapters by residual weight."""
    found = trials[ADAPTERS.name]
    shares: list[list[float]] = []
    for design in DESIGNS:
        cases = (found[design]["1"], found[design][f"{STRONG:g}"])
        shares.append(
            [(one["before"] - one["after"]) / (one["before"] - one["new_alone"]) for one in cases]
        )
    (pre_plain, pre_strong), (post_plain, post_strong) = shares
    return Measured(
        {
            "pre_plain": pre_plain,
            "pre_strong": pre_strong,
            "post_plain": post_plain,
            "post_strong": post_strong,
            "drop": (pre_plain - pre_strong + post_plain - post_strong) / 2,
            "largest": max(pre_plain, pre_strong, post_plain, post_strong),
        }
    )
