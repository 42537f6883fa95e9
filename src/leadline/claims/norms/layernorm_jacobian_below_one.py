"""|J_LN| <= 1?

The note states the inequality for LayerNorm without conditions. |J| = |gamma| / s for one gain in
all features, s = sqrt(var + eps), so every token whose standard deviation is below the gain is a
counterexample. For gains that differ, min|gamma| / s <= |J| <= max|gamma| / s
(`norm_singular_bounds`). Where three features or more have the largest gain, some direction of
these features is orthogonal to 1 and to the token, and |J| = max|gamma| / s; where three have the
least, the smallest singular value that is not lost is min|gamma| / s in the same way. So gains of
two values attain both ends of the bounds. The smallest standard deviation tried is that of GPT-2's
embedding before training, 0.02.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

WIDTH, TOKENS = 64, 4
KEPT = WIDTH - 2
"""How many directions LayerNorm keeps: all but 1 and the token's own."""
STDS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


@claim(
    "layernorm-jacobian-below-one",
    group="norms",
    notes=("shortcuts",),
    title="The Jacobian of LayerNorm has norm at most 1",
    formula=r"\|J_{LN}\| \leq 1",
    plain="‖J_LN‖ ≤ 1",
    says="LayerNorm never lengthens a gradient: its Jacobian has a norm of at most 1, so in "
    "Post-LN every layer takes something away.",
    correction="$\\|J\\| = |\\gamma| / s$ where all gains are equal, and between the smallest and "
    "the largest gain over $s$ otherwise. It is below 1 only where the tokens have a standard "
    "deviation above the gain.",
    why="LayerNorm divides by the standard deviation $s$ of its input, and so does its "
    "derivative. A token with standard deviation 0.1 has a Jacobian of norm {norm_tenth}, one of "
    "GPT-2's embedding size 0.02 of norm {norm_embedding}; at standard deviation 10 it is "
    "{norm_ten}. LayerNorm brings small streams and their gradients up, and large ones down.",
    checks=(
        Check(
            "norm_tenth", "claim", "at most", 1.0 + 1e-9,
            label="norm of J at tokens of std 0.1",
            because="The inequality of the note with room for rounding.",
            log=True,
        ),
        Check(
            "norm_embedding", "claim", "at most", 1.0 + 1e-9,
            label="norm of J at tokens of std 0.02, as in GPT-2's embedding",
            because="The inequality of the note with room for rounding.",
            log=True,
        ),
        Check(
            "formula_error", "correction", "at most", 1e-10,
            label="|γ|/s against the SVD, relative",
            because="An identity where all gains are equal: rounding of an SVD of 64 rows.",
            log=True,
        ),
        Check(
            "band_excess", "correction", "at most", 1.0 + 1e-10,
            label="worst ratio to the band for unequal gains",
            because="Singular values of a product of matrices: no draw may leave the band.",
        ),
        Check(
            "attained", "correction", "at most", 1e-9,
            label="gains of two values: singular values against the ends of the bounds, relative",
            because="Both ends are attained there: rounding of an SVD of 64 rows.",
            log=True,
        ),
        Check(
            "norm_ten", "correction", "at most", 1.0,
            label="norm of J at tokens of std 10",
            because="Where the standard deviation is above the gain the inequality does hold.",
        ),
    ),
    source="",
    seconds=0.3,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """The spectral norm by autograd and SVD over standard deviations of the token."""
    from leadline.claims.norms._layernorm import by_autograd, tokens
    from leadline.theory.norm_jacobian import norm_singular_bounds, norm_singular_values

    rng = np.random.default_rng([seed, 26])
    norms: dict[float, float] = {}
    errors, excess, apart = [0.0], [0.0], [0.0]
    two = np.where(np.arange(WIDTH) % 2, 2.0, 0.5)
    for std in STDS:
        found: list[float] = []
        for x in tokens(seed, 25, count=TOKENS, width=WIDTH, std=std):
            norm = float(np.linalg.norm(by_autograd(x), 2))
            written = float(norm_singular_values(x, norm="layernorm").max())
            found.append(norm)
            errors.append(abs(norm - written) / norm)
            gamma = 1.0 + 0.5 * rng.standard_normal(WIDTH)
            values = np.linalg.svd(by_autograd(x, gamma=gamma), compute_uv=False)
            low, high = norm_singular_bounds(x, norm="layernorm", gamma=gamma)
            excess += [float(values[0] / high.max()), float(low.max() / values[0])]
            values = np.linalg.svd(by_autograd(x, gamma=two), compute_uv=False)
            low, high = norm_singular_bounds(x, norm="layernorm", gamma=two)
            apart += [abs(high[0] / values[0] - 1.0), abs(low[KEPT - 1] / values[KEPT - 1] - 1.0)]
        norms[std] = float(np.mean(found))
    return Measured(
        {
            "norm_tenth": norms[0.1],
            "norm_embedding": norms[0.02],
            "norm_ten": norms[10.0],
            "formula_error": max(errors),
            "band_excess": max(excess),
            "attained": float(max(apart)),
        },
        Picture(
            "standard deviation of the token",
            "spectral norm of J",
            {
                "measured": (STDS, tuple(norms[std] for std in STDS)),
                "limit of the note": (STDS, tuple(1.0 for _ in STDS)),
                "1/σ": (STDS, tuple(1.0 / std for std in STDS)),
            },
            x_log=True,
            y_log=True,
            faint=("limit of the note", "1/σ"),
        ),
    )
