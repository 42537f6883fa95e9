"""With residual connections the gradient stays strong even in the first layers.

The textbook says so of Transformers with skip, which it draws with pre-norm. The claim is pre-norm
of 96 layers after training. The reach is a network that has the skip as well, post-norm of 24
layers. Strong is read as a gradient at the entry that is at least a tenth of that at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.analysis.claim import Check
from leadline.claims._entry import Measured, claim
from leadline.claims.training._cells import cell, ratios
from leadline.claims.training._pictures import gradients

PRE, POST, DEEPNORM = cell("pre", 96), cell("post", 24), cell("deepnorm", 96)
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
    correction="In pre-norm it does, and grows on its way. In post-norm it does where the updates "
    "are small beside the stream (DeepNorm), and not otherwise.",
    why="The gradient at the entry over that at the end, after training without warm-up: pre-norm "
    "of 96 layers {pre:.1f}, DeepNorm of 96 layers {deepnorm:.2f}, post-norm of 24 layers {post}. "
    "All three have a skip around every branch.",
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
            "deepnorm", "correction", "at least", 0.1, label="|g₀|/|g_L| of DeepNorm, 96 layers",
            because=STRONG, log=True,
        ),
    ),
    seconds=0.01,
    needs=(PRE, POST, DEEPNORM),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Gradient ratios of three designs with skip after training."""
    runs = {
        "pre-norm, 96 layers": trials[PRE.name],
        "DeepNorm, 96 layers": trials[DEEPNORM.name],
        "post-norm, 24 layers": trials[POST.name],
    }
    pre, deepnorm, post = (ratios(found)[1] for found in runs.values())
    return Measured({"pre": pre, "deepnorm": deepnorm, "post": post}, gradients(runs))
