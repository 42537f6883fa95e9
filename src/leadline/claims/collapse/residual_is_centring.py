"""The residual of tokens is what statistics calls centring a sample.

Tokens are the sample, features the variables: res(X)' res(X) / (n - 1) is the sample covariance,
and adding one vector to all tokens changes nothing.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

ROUNDING = 1e-12


@claim(
    "residual-is-centring",
    group="collapse",
    notes=("deep-dive",),
    title="The residual of tokens is the centring of statistics",
    formula=r"\frac{\mathrm{res}(X)^T \mathrm{res}(X)}{n - 1} = \mathrm{Cov}(X), \quad \mathrm{res}(X + \mathbf{1} c^T) = \mathrm{res}(X)",
    plain="res(X)ᵀres(X)/(n−1) = Cov(X), res(X + 1cᵀ) = res(X)",
    says="The residual has nothing to do with residual connections: it is the subtraction of the "
    "mean that statistics uses to see how samples differ whatever they have in common.",
    correction="",
    why="The products of the residual with itself are the sample covariance of the tokens (off by "
    "{covariance}), and moving all tokens by the same vector leaves the residual as it was (off by "
    "{shift}). So the residual sees differences between tokens and nothing else.",
    checks=(
        Check(
            "covariance",
            "claim",
            "at most",
            ROUNDING,
            label="against the sample covariance",
            because="The two are the same formula; some thousand eps are left for rounding.",
            log=True,
        ),
        Check(
            "shift",
            "claim",
            "at most",
            ROUNDING,
            label="change under a common shift",
            because="A shift of a hundred costs two digits of sixteen; the rest must agree.",
            log=True,
        ),
    ),
    seconds=0.01,
)
def measure(seed: int) -> Measured:
    """Compare with numpy's covariance, and the followed residual with that of shifted tokens."""
    import numpy as np

    from leadline.claims.collapse._stacks import drawn_layers, drawn_tokens, residual
    from leadline.instruments.collapse.measure import collapse_weights

    x = drawn_tokens(seed)
    rest = residual(x)
    expected = np.cov(x, rowvar=False)
    miss = np.linalg.norm(rest.T @ rest / (len(x) - 1) - expected) / np.linalg.norm(expected)
    layers = drawn_layers(seed, depth=1)
    first, moved = (float(collapse_weights(at, layers).log10_residual[0]) for at in (x, x + 100.0))
    return Measured({"covariance": float(miss), "shift": abs(10.0 ** (moved - first) - 1.0)})
