"""With residual connections the gradient stays strong even in the first layers.

The textbook says so of Transformers with skip, which it draws with pre-norm. The claim is pre-norm
of 96 layers after training. The reach is a network that has the skip as well, post-norm of 24
layers. Strong is read as a gradient at the entry that is at least a tenth of that at the end. The
corrected statement is about post-norm models that train, of 6 layers and DeepNorm of 96.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check
from leadline.claims.training._cells import cell, gain, ratios, stuck, trains
from leadline.claims.training._pictures import gradients

PRE, POST, DEEPNORM = cell("pre", 96), cell("post", 24), cell("deepnorm", 96)
SIX = cell("post", 6)
STRONG = "Strong is read as at least a tenth of the gradient at the end."


@claim(
    "first-layers-hear-the-loss",
    group="training",
    notes=("textbook",),
    title="With a skip the gradient stays strong in the first layers",
    formula=r"x_{l+1} = x_l + F_l(x_l) \; \Rightarrow \; "
    r"\left\|\frac{\partial L}{\partial x_0}\right\| \not\to 0",
    plain="x + F(x): ‖∂L/∂x₀‖ does not vanish",
    says="With shortcuts the gradient remains strong even in the earliest layers of very deep "
    "networks.",
    correction="In pre-norm it does, and grows on its way. In post-norm it does where the model "
    "trains (6 layers, or DeepNorm at 96), and not at 24 layers without warm-up.",
    why="The gradient at the entry over that at the end, after training without warm-up: pre-norm "
    "of 96 layers {pre:.1f}, DeepNorm of 96 layers {deepnorm:.2f}, post-norm of 6 layers "
    "{six:.2f}, post-norm of 24 layers {post}. All four have a skip around every branch; the last "
    "is stuck.",
    checks=(
        Check(
            "pre", "claim", "at least", 0.1, label="|g₀|/|g_L| of pre-norm, 96 layers",
            because=STRONG, log=True,
        ),
        Check(
            "post", "reach", "at least", 0.1, label="|g₀|/|g_L| of post-norm, 24 layers",
            because=STRONG, log=True,
        ),
        Check(
            "grown", "correction", "at least", 1.0, label="|g₀|/|g_L| of pre-norm, again",
            because="A gradient that grows on its way back is larger at the entry.", log=True,
        ),
        Check(
            "deepnorm", "correction", "at least", 0.1, label="|g₀|/|g_L| of DeepNorm, 96 layers",
            because=STRONG, log=True,
        ),
        Check(
            "six", "correction", "at least", 0.1, label="|g₀|/|g_L| of post-norm, 6 layers",
            because=STRONG, log=True,
        ),
        trains("learned", "correction", "gain of post-norm, 6 layers, or DeepNorm, the smaller"),
        stuck("post_gain", "correction", "gain of post-norm, 24 layers"),
    ),
    seconds=0.01,
    needs=(PRE, POST, DEEPNORM, SIX),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Gradient ratios of four networks with skip after training."""
    runs = {
        "pre-norm, 96 layers": trials[PRE.name],
        "DeepNorm, 96 layers": trials[DEEPNORM.name],
        "post-norm, 6 layers": trials[SIX.name],
        "post-norm, 24 layers": trials[POST.name],
    }
    pre, deepnorm, six, post = (ratios(found)[1] for found in runs.values())
    return Measured(
        {
            "pre": pre,
            "grown": pre,
            "deepnorm": deepnorm,
            "six": six,
            "post": post,
            "learned": min(gain(trials[one.name]) for one in (SIX, DEEPNORM)),
            "post_gain": gain(trials[POST.name]),
        },
        gradients(runs),
    )
