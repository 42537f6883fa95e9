"""Pre-LN is explicit Euler, whose stability is easy to control.

Explicit Euler with step h is stable along an eigenvalue lambda of f' where |1 + h lambda| <= 1: a
condition that is easy to state, and a small enough step meets it for every Re lambda < 0 (where
Re lambda >= 0 the flow itself does not fall, and no step helps). That is the claim: f(x) = -3x with
h = 0.5. Its reach is the network that the note writes, whose step is 1: the same f, whose flow falls
like e^(-3t), then gives 2^20 after 20 layers; and the first block of an untrained pre-norm network has
eigenvalues outside of the disc along which the flow falls. That the condition decides is checked on
random lambda and h.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from leadline.claims.algebra._ode import ODE, spectrum_of
from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

RATE, LAYERS, DRAWS, LONG = -3.0, 20, 500, 400
BLOCK = "identity, pre, xavier, block 1"
LENGTH, KNOWN = 8, 1e-6
DESIGN = {
    "depth": 12, "width": 16, "heads": 2, "context": LENGTH, "positions": "none", "mlp": "gelu_tanh",
}  # fmt: skip
"""The network whose block that is."""


def _euler(rate: complex, h: float, layers: int) -> list[float]:
    """|x| after 0, 1, ... steps of x <- x + h rate x from 1."""
    x, found = complex(1.0), [1.0]
    for _ in range(layers):
        x += h * rate * x
        found.append(abs(x))
    return found


@claim(
    "euler-is-easily-stable",
    group="algebra",
    notes=("shortcuts",),
    title="Pre-LN is explicit Euler, whose stability is easy to control",
    formula=r"x_{l+1} = x_l + h f(x_l), \qquad |1 + h \lambda| \le 1",
    plain="x + h f(x): stable where |1 + h λ| ≤ 1",
    says="Pre-LN looks like explicit Euler integration, and its condition of stability is easily "
    "controlled.",
    correction="The condition is $|1 + h \\lambda| \\le 1$ for the eigenvalues $\\lambda$ of $f'$. Where "
    "$\\mathrm{Re} \\lambda < 0$ a small enough step $h$ meets it; where $\\mathrm{Re} \\lambda > 0$ "
    "the flow itself grows. A network has the step 1: its stability hangs on the branch's eigenvalues, "
    "which nothing controls but the weights.",
    why="For $f(x) = -3x$, whose flow falls to zero, 20 steps of 0.5 give {small_step}, and 20 layers of "
    "step 1 give {layer_step}: each multiplies by $-2$. In the first block of an untrained pre-norm "
    "network the largest $|1 + \\lambda|$ among the eigenvalues with $\\mathrm{Re} \\lambda < 0$, along "
    "which the flow falls, is {block}, outside of the disc of stability. In {draws:.0f} random cases the condition told growth from decay {wrong:.0f} times wrongly.",
    checks=(
        Check(
            "small_step", "claim", "at most", 1.0,
            label="|x| after 20 steps of 0.5, f = -3x",
            because="Stable means that a solution which falls does not grow.",
            log=True,
        ),
        Check(
            "layer_step", "reach", "at most", 1.0,
            label="|x| after 20 layers of step 1, f = -3x",
            because="Stable means that a solution which falls does not grow.",
            log=True,
        ),
        Check(
            "block", "reach", "at most", 1.0 + 1e-6,
            label="largest |1 + λ| of the first pre-norm block where Re λ < 0",
            because="The condition itself; a double eigenvalue is known to 1e-6 only.",
        ),
        Check(
            "wrong", "correction", "at most", 0.0,
            label="random cases that the condition tells wrongly",
            because="A theorem for f(x) = λ x: |x_n| = |1 + h λ|^n.",
        ),
        Check(
            "cured", "correction", "at most", 1.0 + 1e-9,
            label="largest |1 + h λ| where Re λ < 0, h = -Re λ / |λ|²",
            because="A theorem: |1 + h λ|² = 1 - (Re λ)² / |λ|² at that step; the rest is rounding.",
        ),
        Check(
            "same", "correction", "near", 1.0, within=1e-6,
            label="largest |1 + λ| of that block, by ode-view over by hand",
            because="Two routes to one number; a double eigenvalue is known to 1e-6 only.",
        ),
    ),
    source="Hairer, Wanner, Solving Ordinary Differential Equations II, section IV.2",
    seconds=0.3,
    needs=(ODE,),
)  # fmt: skip
def measure(seed: int, found: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Euler's method on numbers, and the eigenvalues of an untrained block."""
    from leadline.claims.algebra._networks import built, matrix_of, stretches_of, tokens_of

    model = built(DESIGN, seed=seed)
    stretches = stretches_of(model, tokens_of(model, length=LENGTH, seed=seed))
    values = np.linalg.eigvals(matrix_of(*stretches.function(0, 1)))
    rates = values - 1.0
    falling = rates[rates.real < -KNOWN]
    steps = -falling.real / np.abs(falling) ** 2
    rng = np.random.default_rng([seed, 111])
    wrong = 0
    for real, imaginary, h in rng.uniform([-4.0, -2.0, 0.0], [0.5, 2.0, 1.0], size=(DRAWS, 3)):
        rate = complex(float(real), float(imaginary))
        stable = abs(1.0 + float(h) * rate) <= 1.0
        wrong += stable != (_euler(rate, float(h), LONG)[-1] <= 1.0)
    counted = tuple(float(at) for at in range(LAYERS + 1))
    lines = {f"step {h:.3g}": (counted, tuple(_euler(RATE, h, LAYERS))) for h in (0.25, 0.5, 1.0)}
    return Measured(
        {
            "small_step": lines["step 0.5"][1][-1],
            "layer_step": lines["step 1"][1][-1],
            "block": float(np.max(np.abs(1.0 + falling))),
            "cured": float(np.max(np.abs(1.0 + steps * falling))),
            "same": float(spectrum_of(found, BLOCK)["largest |1 + λ|"]) / np.max(np.abs(values)),
            "wrong": float(wrong),
            "draws": float(DRAWS),
        },
        Picture("layers", "|x|", lines, y_log=True),
    )
