"""What LayerNorm's Jacobian is made of.

The note lists mean subtraction, division by the standard deviation, and scale and shift as what
the Jacobian contains. Each is tried by itself: the Jacobian is taken with and without it. A
constant that is added has no derivative, so the shift cannot be in it.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

WIDTH, TOKENS = 32, 4


@claim(
    "shift-in-the-jacobian",
    group="norms",
    notes=("shortcuts",),
    title="The Jacobian of LayerNorm contains its scale and its shift",
    formula=r"J_{LN} = J_{LN}(\mu, \sigma, \gamma, \beta)",
    plain="J_LN depends on μ, σ, γ and β",
    says="Subtracting the mean, dividing by the standard deviation, and the learned scale and "
    "shift all enter the Jacobian of LayerNorm.",
    correction="Mean subtraction, division and scale enter the Jacobian. The shift $\\beta$ does "
    "not: it is a constant that is added.",
    why="The Jacobian was taken with and without each ingredient. Another scale changes it by "
    "{scale_change:.2f} of its size and tokens twice as large by {size_change:.2f}, and a step "
    "that moves the mean alone is removed: {mean_left:.1e} of it is left. Another shift changes "
    "it by {shift_change}. So the shift cannot make gradients larger or smaller.",
    checks=(
        Check(
            "scale_change", "claim", "at least", 0.01,
            label="relative change of J with another scale γ",
            because="Scales with a spread of one half must change J by far more than rounding.",
        ),
        Check(
            "size_change", "claim", "at least", 0.01,
            label="relative change of J at tokens twice as large",
            because="Division by a standard deviation twice as large must change J by about half.",
        ),
        Check(
            "shift_change", "claim", "at least", 1e-6,
            label="relative change of J with another shift β",
            because="What a matrix contains changes it by more than rounding.",
        ),
        Check(
            "mean_left", "correction", "at most", 1e-12,
            label="what J leaves of a step of the mean",
            because="J 1 = 0 exactly: a sum of 32 features in float64.",
            log=True,
        ),
    ),
    source="",
    seconds=0.03,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Exchange scale, size and shift in turn."""
    from leadline.claims.norms._layernorm import by_autograd, tokens

    rng = np.random.default_rng([seed, 28])
    changes: dict[str, list[float]] = {"scale": [], "size": [], "shift": [], "mean": []}
    for x in tokens(seed, 29, count=TOKENS, width=WIDTH):
        gamma = 1.0 + 0.5 * rng.standard_normal(WIDTH)
        plain = by_autograd(x)
        size = float(np.linalg.norm(plain))
        others = {
            "scale": by_autograd(x, gamma=gamma),
            "size": by_autograd(2.0 * x),
            "shift": by_autograd(x, beta=rng.standard_normal(WIDTH)),
        }
        for name, other in others.items():
            changes[name].append(float(np.linalg.norm(other - plain)) / size)
        changes["mean"].append(float(np.abs(plain @ np.ones(WIDTH)).max() / np.abs(plain).max()))
    return Measured(
        {
            "scale_change": min(changes["scale"]),
            "size_change": min(changes["size"]),
            "shift_change": max(changes["shift"]),
            "mean_left": max(changes["mean"]),
        }
    )
