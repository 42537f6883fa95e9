"""In training, pre-norm's gradients are more uniform over the layers than post-norm's.

The talk says that pre-norm's gradients are more uniform. Uniform is the largest gradient of the
stream over the smallest, max_l |g_l| / min_l |g_l|, after training. The claim is 24 layers without
warm-up, the deep models that the talk is about. The reach is 6 layers, where both placements
train: there the sentence would have to hold too if it were about the placement.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check
from leadline.claims.training._cells import cell, profile
from leadline.claims.training._pictures import gradients

PRE_DEEP, POST_DEEP = cell("pre", 24), cell("post", 24)
PRE, POST = cell("pre", 6), cell("post", 6)
MORE = "More uniform is read as a smaller spread, by a fifth at least."


@claim(
    "trained-gradients-more-uniform",
    group="training",
    notes=("shortcuts",),
    title="In training, pre-norm's gradients are more uniform",
    formula=r"\frac{\max_l \|\partial L / \partial x_l\|}{\min_l \|\partial L / \partial x_l\|}"
    r" \text{ is smaller with pre-norm}",
    plain="max‖∂L/∂x_l‖ / min‖∂L/∂x_l‖ is smaller with pre-norm",
    says="With pre-norm the gradients are more uniform over the layers.",
    correction="Beside a deep post-norm model that is stuck they are. Where both train, "
    "post-norm's are the more uniform ones: pre-norm's grow towards the first layers.",
    why="The largest gradient of the stream over the smallest, after training. At 24 layers: "
    "pre-norm {pre_deep:.1f}, post-norm {post_deep}, which is stuck. At 6 layers, where both "
    "train: pre-norm {pre:.1f}, post-norm {post:.1f}. In pre-norm the stream grows with depth and "
    "every norm divides by it, so later layers answer less and the gradient grows on its way back.",
    checks=(
        Check(
            "deep", "claim", "at least", 1.2, label="spread of post-norm over pre-norm, 24 layers",
            because=MORE, log=True,
        ),
        Check(
            "shallow", "reach", "at least", 1.2,
            label="spread of post-norm over pre-norm, 6 layers", because=MORE,
        ),
        Check(
            "reverse", "correction", "at least", 1.2,
            label="spread of pre-norm over post-norm, 6 layers", because=MORE,
        ),
    ),
    seconds=0.01,
    needs=(PRE_DEEP, POST_DEEP, PRE, POST),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """The spread of gradients over the layers after training."""
    runs = {
        "pre-norm, 24 layers": trials[PRE_DEEP.name],
        "post-norm, 24 layers": trials[POST_DEEP.name],
        "pre-norm, 6 layers": trials[PRE.name],
        "post-norm, 6 layers": trials[POST.name],
    }
    spread = [max(values) / min(values) for values in map(profile, runs.values())]
    return Measured(
        {
            "pre_deep": spread[0],
            "post_deep": spread[1],
            "pre": spread[2],
            "post": spread[3],
            "deep": spread[1] / spread[0],
            "shallow": spread[3] / spread[2],
            "reverse": spread[2] / spread[3],
        },
        gradients(runs),
    )
