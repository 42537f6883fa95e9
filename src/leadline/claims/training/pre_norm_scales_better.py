"""Pre-norm is more robust and scales better with depth than post-norm.

The conclusion of the summary; the textbook and the deep dive say the same of very deep networks.
The claim is 24 and 96 layers with the same settings. The reach is a network that is not deep, 6
layers, and post-norm made for depth, DeepNorm, at 96.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check
from leadline.claims.training._cells import cell, gain, trains
from leadline.claims.training._pictures import losses

PRE_24, POST_24 = cell("pre", 24), cell("post", 24)
PRE_96, POST_96, DEEPNORM = cell("pre", 96), cell("post", 96), cell("deepnorm", 96)
PRE_6, POST_6 = cell("pre", 6), cell("post", 6)
LEAD = "0.3 nats are the margin between a model that trains and one that does not."


@claim(
    "pre-norm-scales-better",
    group="training",
    notes=("summary", "textbook", "deep-dive"),
    title="Pre-norm scales better with depth than post-norm",
    formula=r"\text{loss}(x + F(\mathrm{LN}(x))) < \text{loss}(\mathrm{LN}(x + F(x)))",
    plain="x + F(LN(x)) scales better with depth than LN(x + F(x))",
    says="Pre-norm is more robust than post-norm and scales better with depth.",
    correction="In deep stacks with the same settings it does. In a shallow one the two are "
    "close, and DeepNorm, a post-norm made for depth, trains at 96 layers too.",
    why="Gains in nats over the entropy of the byte frequencies, pre-norm and post-norm: "
    "{pre_24:.2f} and {post_24:.2f} at 24 layers, {pre_96:.2f} and {post_96:.2f} at 96, "
    "{pre_6:.2f} and {post_6:.2f} at 6. DeepNorm has {deepnorm:.2f} at 96.",
    checks=(
        Check(
            "lead_24", "claim", "at least", 0.3,
            label="gain of pre-norm minus post-norm, 24 layers", because=LEAD,
        ),
        Check(
            "lead_96", "claim", "at least", 0.3,
            label="gain of pre-norm minus post-norm, 96 layers", because=LEAD,
        ),
        Check(
            "lead_6", "reach", "at least", 0.3, label="gain of pre-norm minus post-norm, 6 layers",
            because=LEAD,
        ),
        Check(
            "lead_deepnorm", "reach", "at least", 0.3,
            label="gain of pre-norm minus DeepNorm, 96 layers", because=LEAD,
        ),
        trains("deepnorm", "correction", "gain of DeepNorm, 96 layers"),
        trains("post_6", "correction", "gain of post-norm, 6 layers"),
    ),
    seconds=0.01,
    needs=(PRE_24, POST_24, PRE_96, POST_96, DEEPNORM, PRE_6, POST_6),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Gains of both placements by depth."""
    runs = {
        "pre_24": trials[PRE_24.name],
        "post_24": trials[POST_24.name],
        "pre_96": trials[PRE_96.name],
        "post_96": trials[POST_96.name],
        "pre_6": trials[PRE_6.name],
        "post_6": trials[POST_6.name],
        "deepnorm": trials[DEEPNORM.name],
    }
    gains = {name: gain(found) for name, found in runs.items()}
    shown = {
        "pre-norm, 96 layers": runs["pre_96"],
        "post-norm, 96 layers": runs["post_96"],
        "DeepNorm, 96 layers": runs["deepnorm"],
        "pre-norm, 6 layers": runs["pre_6"],
        "post-norm, 6 layers": runs["post_6"],
    }
    return Measured(
        {
            **gains,
            "lead_24": gains["pre_24"] - gains["post_24"],
            "lead_96": gains["pre_96"] - gains["post_96"],
            "lead_6": gains["pre_6"] - gains["post_6"],
            "lead_deepnorm": gains["pre_96"] - gains["deepnorm"],
        },
        losses(shown),
    )
