"""LayerNorm makes every token's features have mean zero and variance one.

Said before the gain and the shift come in. Exact for the mean; the variance is
sigma² / (sigma² + eps), 1 where the token is large against sqrt(eps). "reach" carries the
sentence to tokens that are small, and to one whose features are all equal.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

WIDTH, TOKENS, EPS = 64, 32, 1e-5


@claim(
    "layernorm-by-token",
    group="norms",
    notes=("deep-dive",),
    title="LayerNorm gives the features of every token mean 0 and variance 1",
    formula=r"\mathrm{mean}(\hat{x}_i) = 0, \quad \mathrm{Var}(\hat{x}_i) = 1",
    plain="mean x̂_i = 0, Var x̂_i = 1 for every token i",
    says="LayerNorm works row by row: all features of one token are brought to mean zero and "
    "variance one, before a learned gain and shift are applied.",
    correction="The mean is 0 always, the variance is "
    "$\\frac{\\sigma^2}{\\sigma^2 + \\varepsilon}$: 1 for tokens that are large against "
    "$\\sqrt{\\varepsilon}$, less for small ones, and 0 for a token whose features are all equal.",
    why="Tokens of standard deviation 1 have mean {mean_error:.1e} and a variance that is off by "
    "{variance_error:.1e}. At the size of GPT-2's embedding before training, 0.02, the variance is "
    "{variance_embedding:.3f}; at a standard deviation of 0.001 it is {variance_small:.3f}. "
    "The $\\varepsilon$ that protects the division takes the rest.",
    checks=(
        Check(
            "mean_error", "claim", "at most", 1e-12,
            label="largest mean over the features of a token",
            because="An identity: a sum of 64 features of order one in float64.",
            log=True,
        ),
        Check(
            "variance_error", "claim", "at most", 1e-4,
            label="distance of the variance to 1, tokens of std 1",
            because="ε is 1e-5; ten times that is what unit variance can mean.",
            log=True,
        ),
        Check(
            "variance_small", "reach", "near", 1.0, within=0.1,
            label="variance behind LayerNorm, tokens of std 0.001",
            because="Unit variance to one part in ten, for tokens of any size.",
        ),
        Check(
            "variance_equal", "reach", "near", 1.0, within=0.1,
            label="variance behind LayerNorm, all features equal",
            because="Unit variance to one part in ten, for every token.",
        ),
        Check(
            "law_error", "correction", "at most", 1e-12,
            label="variance against σ²/(σ² + ε)",
            because="An identity, to rounding of a sum over 64 features.",
            log=True,
        ),
    ),
    source="Ba, Kiros, Hinton 2016, arXiv 1607.06450",
    seconds=0.01,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Mean and variance of every token behind the norm, for tokens of several sizes."""
    from leadline.claims.norms._layernorm import applied, tokens
    from leadline.theory.norm_jacobian import normed

    rng = np.random.default_rng([seed, 40])
    variances: dict[float, np.ndarray] = {}
    means, errors = [0.0], [0.0]
    for std in (1.0, 0.02, 1e-3):
        x = tokens(seed, 39, count=TOKENS, width=WIDTH, std=std)
        after = applied(x + rng.standard_normal((TOKENS, 1)) * std, eps=EPS)
        written = np.stack([normed(one, norm="layernorm", eps=EPS)[0] for one in x])
        variances[std] = after.var(axis=1)
        means.append(float(np.abs(after.mean(axis=1)).max()))
        law = std**2 / (std**2 + EPS)
        errors += [float(np.abs(one.var(axis=1) - law).max()) for one in (after, written)]
    equal = applied(np.full((1, WIDTH), 0.5), eps=EPS)
    return Measured(
        {
            "mean_error": max(means),
            "variance_error": float(np.abs(variances[1.0] - 1.0).max()),
            "variance_embedding": float(variances[0.02].mean()),
            "variance_small": float(variances[1e-3].mean()),
            "variance_equal": float(equal.var()),
            "law_error": max(errors),
        }
    )
