"""LayerNorm projects onto the vectors of mean zero.

"claim": LayerNorm as it starts, gain 1 and shift 0. "reach": the same of a trained LayerNorm, with
gains and shifts that differ by feature: gamma xh + beta has the mean of gamma xh + beta, which is
not 0. What keeps mean zero is (z - beta) / gamma.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

WIDTH, TOKENS = 64, 64


@claim(
    "layernorm-zero-mean-space",
    group="norms",
    notes=("shortcuts",),
    title="LayerNorm projects vectors onto the space of zero mean",
    formula=r"\mathbf{1}^T LN(x) = 0",
    plain="1ᵀ LN(x) = 0",
    says="LayerNorm projects a vector onto the space of vectors with zero mean.",
    correction="That holds before gain and shift, or while all gains are equal and the shift is "
    "zero. Afterwards $(z - \\beta) / \\gamma$ has zero mean, and $z$ itself does not. And it is "
    "no projection: a projection leaves what is there already as it is, LayerNorm brings it to "
    "size.",
    why="As it starts, LayerNorm gives tokens of mean {mean_bare:.1e}. With drawn gains between "
    "0.5 and 1.5 and shifts of one half, the mean of a token is {mean_trained:.2f} in the root "
    "mean square. The space has only been stretched and moved: without gain and shift the mean "
    "is {mean_undone:.1e} again.",
    checks=(
        Check(
            "mean_bare", "claim", "at most", 1e-12,
            label="mean of a token behind LayerNorm as it starts",
            because="An identity: a sum of 64 features of order one in float64.",
            log=True,
        ),
        Check(
            "mean_trained", "reach", "at most", 0.01,
            label="mean of a token behind LayerNorm with gain and shift",
            because="Zero mean beside features of order one.",
        ),
        Check(
            "mean_undone", "correction", "at most", 1e-12,
            label="mean of (z − β)/γ",
            because="An identity; gains between 0.5 and 1.5 lose no digits.",
            log=True,
        ),
        Check(
            "twice", "correction", "at least", 0.1,
            label="change of a zero-mean token of std 2 by LayerNorm, relative",
            because="A projection would change nothing; halving the token changes half of it.",
        ),
    ),
    source="",
    seconds=0.02,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Means behind the norm as it starts, and with a gain and a shift."""
    from leadline.claims.norms._layernorm import applied, tokens

    rng = np.random.default_rng([seed, 44])
    x = tokens(seed, 42, count=TOKENS, width=WIDTH, std=2.0)
    gamma, beta = rng.uniform(0.5, 1.5, WIDTH), 0.5 * rng.standard_normal(WIDTH)
    moved = x + rng.standard_normal((TOKENS, 1))  # tokens with a mean of their own
    trained = applied(moved, gamma=gamma, beta=beta)
    undone = (trained - beta) / gamma
    bare = applied(moved)
    return Measured(
        {
            "mean_bare": float(np.abs(bare.mean(axis=1)).max()),
            "mean_trained": float(np.sqrt((trained.mean(axis=1) ** 2).mean())),
            "mean_undone": float(np.abs(undone.mean(axis=1)).max()),
            "twice": float(np.linalg.norm(applied(x) - x) / np.linalg.norm(x)),
        }
    )
