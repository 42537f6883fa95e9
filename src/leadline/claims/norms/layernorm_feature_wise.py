"""Does LayerNorm normalise feature by feature?

"Feature-wise" is read as it is used of norms: statistics of each feature, over tokens or examples,
as in BatchNorm. The tokens have features of different size (a factor of a hundred), as in real
streams. LayerNorm's statistics are those of each token, over its features; read in that way the
sentence is right, which is the correction.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

WIDTH, TOKENS = 64, 4096


@claim(
    "layernorm-feature-wise",
    group="norms",
    notes=("textbook",),
    title="LayerNorm normalises mean and variance feature-wise",
    formula=r"\mathrm{mean}_i \, LN(X)_{ij} = 0, \quad \mathrm{Var}_i \, LN(X)_{ij} = 1",
    plain="mean over tokens of LN(X)_ij = 0 and variance 1, for every feature j",
    says="LayerNorm stabilises the inputs of a sublayer by normalising mean and variance "
    "feature-wise.",
    correction="LayerNorm normalises token by token: mean and variance are taken over the "
    "features of one token. A single feature keeps its own mean and size over the tokens; making "
    "these equal is what BatchNorm does.",
    why="In these tokens some features are a hundred times as large as others and have a mean of "
    "their own, as in real models. Behind LayerNorm a feature has a variance between "
    "{smallest:.1e} and {largest:.1f} over the tokens, and a mean of up to {feature_mean:.2f}. "
    "Over the features of one token the mean is {token_mean:.1e} and the variance off by "
    "{token_variance:.1e}.",
    checks=(
        Check(
            "variance_ratio", "claim", "at most", 1.1,
            label="largest over smallest variance of a feature behind LayerNorm",
            because="Normalised feature by feature all variances are 1; 4096 tokens scatter by "
            "2 %.",
            log=True,
        ),
        Check(
            "feature_mean", "claim", "at most", 0.1,
            label="largest mean of a feature over the tokens",
            because="Normalised feature by feature all means are 0; 4096 tokens scatter by 0.02.",
        ),
        Check(
            "token_mean", "correction", "at most", 1e-12,
            label="largest mean over the features of a token",
            because="An identity to rounding.",
            log=True,
        ),
        Check(
            "token_variance", "correction", "at most", 1e-3,
            label="distance to 1 of the variance over the features of a token",
            because="ε = 1e-5 against variances above 0.1 leaves less than 1e-4.",
            log=True,
        ),
    ),
    source="Ba, Kiros, Hinton 2016, arXiv 1607.06450",
    seconds=0.01,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Statistics of features and of tokens behind the norm."""
    from leadline.claims.norms._layernorm import applied

    rng = np.random.default_rng([seed, 41])
    sizes = np.logspace(-1.0, 1.0, WIDTH)
    x = sizes * (rng.standard_normal((TOKENS, WIDTH)) + rng.choice([-0.5, 0.5], WIDTH))
    after = applied(x)
    variances = after.var(axis=0)
    return Measured(
        {
            "smallest": float(variances.min()),
            "largest": float(variances.max()),
            "variance_ratio": float(variances.max() / variances.min()),
            "feature_mean": float(np.abs(after.mean(axis=0)).max()),
            "token_mean": float(np.abs(after.mean(axis=1)).max()),
            "token_variance": float(np.abs(after.var(axis=1) - 1.0).max()),
        }
    )
