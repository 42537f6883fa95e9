"""Without a residual connection gradients vanish, above all from 24 layers on.

The notes mean Transformers, which have norms, and say it of the gradient that training uses. So
the claim is a network of 24 layers without skip, with norms, after a short training. The reach is
the same network before its first update, where the talk's product of small factors would have to
show. Without skip and without norms the product does vanish at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check
from leadline.claims.training._cells import cell, cosines, ratios
from leadline.claims.training._pictures import gradients

NO_SKIP, PLAIN, PRE = cell("no skip", 24), cell("plain", 24, steps=5), cell("pre", 24)
VANISHED = "Vanished is read as less than a thousandth of the gradient at the end."


@claim(
    "no-skip-gradients-vanish",
    group="training",
    notes=("shortcuts", "summary", "textbook"),
    title="Without a residual connection gradients vanish at 24 layers and more",
    formula=r"x_{l+1} = F_l(x_l) \; \Rightarrow \; "
    r"\left\|\frac{\partial L}{\partial x_0}\right\| \to 0",
    plain="x' = F(x): ‖∂L/∂x₀‖ → 0",
    says="Without shortcuts the gradient is a product of many matrices and dies out on its way "
    "to the first layers, especially from 24 layers on.",
    correction="Without skip and without norms the gradient has vanished before training. With "
    "norms it has not: it vanishes in training, where all tokens have become one vector.",
    why="At 24 layers without skip and without norms the gradient at the entry is {plain} of that "
    "at the end before any training. With norms it is 10 to the power {start_log:.1f} of "
    "it on average: it has not vanished. After 300 updates it is {end}, and the mean cosine of two "
    "tokens is {cosine:.4f}. With a skip and pre-norm it ends at {pre:.1f}. The practical "
    "advice is right; the product of small factors is the reason only where norms are missing too.",
    checks=(
        Check(
            "end", "claim", "at most", 1e-3, label="|g₀|/|g_L| after training, norms, no skip",
            because=VANISHED, log=True,
        ),
        Check(
            "start", "reach", "at most", 1e-3, label="|g₀|/|g_L| before training, norms, no skip",
            because=VANISHED, log=True,
        ),
        Check(
            "plain", "correction", "at most", 1e-3,
            label="|g₀|/|g_L| before training, no norms, no skip", because=VANISHED, log=True,
        ),
        Check(
            "start_kept", "correction", "at least", 1e-3,
            label="|g₀|/|g_L| before training, norms, no skip, again", because=VANISHED, log=True,
        ),
        Check(
            "cosine", "correction", "at least", 0.999, label="token cosine after training, no skip",
            because="One vector is read as a mean cosine of 0.999; a trained model has about 0.5.",
        ),
        Check(
            "pre", "correction", "at least", 0.1, label="|g₀|/|g_L| after training, pre-norm",
            because="A gradient of at least a tenth of that at the end has not vanished.", log=True,
        ),
    ),
    source="Noci et al. 2022, arXiv 2206.03126",
    seconds=0.01,
    needs=(NO_SKIP, PLAIN, PRE),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Gradient ratios without skip, with norms and without, before and after."""
    start, end = ratios(trials[NO_SKIP.name])
    return Measured(
        {
            "start": start,
            "start_kept": start,
            "start_log": math.log10(start) if start > 0 else -math.inf,
            "end": end,
            "plain": ratios(trials[PLAIN.name])[0],
            "cosine": cosines(trials[NO_SKIP.name])[1],
            "pre": ratios(trials[PRE.name])[1],
        },
        gradients({"no skip, after training": trials[NO_SKIP.name], "pre-norm": trials[PRE.name]}),
    )
