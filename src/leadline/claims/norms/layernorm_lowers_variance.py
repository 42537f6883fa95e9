"""Does LayerNorm lower the variance, and are gradients small for that reason?

The sentence stands where the note says what happens without a skip. It is read as two statements:
the variance behind LayerNorm is below the one before it, and gradients become small. The first is
tried at streams of different size; the second at the norm itself and in whole stacks without skip
but with norms, before training.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check
from leadline.claims.norms._start import AT_START, found_in

WIDTH, TOKENS = 64, 16
DEEP = (24, 48, 96)


@claim(
    "layernorm-lowers-variance",
    group="norms",
    notes=("summary",),
    title="LayerNorm lowers the variance, and gradients become small",
    formula=r"\mathrm{Var}(LN(x)) < \mathrm{Var}(x)",
    plain="Var LN(x) < Var x, so gradients shrink",
    says="Without a residual connection LayerNorm lowers the variance of the signal, and the "
    "gradients become small.",
    correction="LayerNorm sets the variance to 1, whatever it was: it raises that of a small "
    "stream. It multiplies gradients by $\\gamma / s$, so it enlarges them where $s < \\gamma$. "
    "In a stack with norms and without skips no gradient vanishes before training.",
    why="Tokens with standard deviation 0.1 leave LayerNorm with {raised:.0f} times their "
    "variance, and a gradient that comes back through it is {gain_small:.1f} times as long; at "
    "standard deviation 10 both shrink. In stacks of 24, 48 and 96 layers without skip, the "
    "gradient at the entry was {least_ratio:.2f} times that at the end where it was smallest.",
    checks=(
        Check(
            "raised", "claim", "at most", 1.0,
            label="variance behind LayerNorm over the one before, std 0.1",
            because="Lowering means a ratio below 1, whatever the input.",
            log=True,
        ),
        Check(
            "gain_small", "claim", "at most", 1.0,
            label="length of a gradient behind LayerNorm's Jacobian, std 0.1",
            because="A gradient that becomes small gets shorter.",
            log=True,
        ),
        Check(
            "least_ratio", "claim", "at most", 1e-3,
            label="gradient at entry over end, no skip, least of 24, 48, 96 layers",
            because="Small is read as a thousandfold loss over at least 24 layers.",
            log=True,
        ),
        Check(
            "variance_error", "correction", "at most", 1e-12,
            label="variance behind LayerNorm against σ²/(σ² + ε)",
            because="An identity for every token, to rounding of a sum over 64 features.",
            log=True,
        ),
        Check(
            "gain_error", "correction", "at most", 1e-10,
            label="largest gain against 1/s, relative",
            because="An identity: the largest singular value of the Jacobian.",
            log=True,
        ),
    ),
    source="",
    seconds=0.05,
    needs=(AT_START,),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Variances and gradients at one norm, and gradients of stacks without skip."""
    from leadline.claims.norms._layernorm import applied, by_autograd, tokens
    from leadline.theory.norm_jacobian import norm_singular_values

    rng = np.random.default_rng([seed, 19])
    raised: list[float] = []
    gains: list[float] = []
    errors, gain_errors = [0.0], [0.0]
    for std in (0.1, 1.0, 10.0):
        x = tokens(seed, 18, count=TOKENS, width=WIDTH, std=std)
        after = applied(x).var(axis=1)
        errors.append(float(np.abs(after - std**2 / (std**2 + 1e-5)).max()))
        for token in x[:4]:
            jacobian = by_autograd(token)
            gradient = rng.standard_normal(WIDTH)
            largest = float(np.linalg.norm(jacobian, 2))
            written = float(norm_singular_values(token, norm="layernorm").max())
            gain_errors.append(abs(largest - written) / largest)
            if std == 0.1:
                gains.append(
                    float(np.linalg.norm(jacobian.T @ gradient) / np.linalg.norm(gradient))
                )
        if std == 0.1:
            raised = [float(one) / std**2 for one in after]
    no_skip = found_in(trials, "no skip")
    return Measured(
        {
            "raised": min(raised),
            "gain_small": min(gains),
            "least_ratio": min(no_skip.ratio(depth) for depth in DEEP),
            "variance_error": max(errors),
            "gain_error": max(gain_errors),
        }
    )
