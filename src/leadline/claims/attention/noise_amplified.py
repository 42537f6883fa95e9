"""Errors and noise are amplified in the same way.

The note says of attention matrices of norm above 1 that they amplify noise too. Noise is read as
independent noise on every token. The mean square of A e is |A|_F^2 / n times that of e, which is at
most 1; attention averages it. Measured with drawn noise through one causal matrix and
through many in a row, beside the formula. What the norm says is about the one worst direction v:
by Jensen's inequality |A v|^2 <= sum_j c_j v_j^2 with the column sums c_j, so only an error on tokens
that get more than one query's attention can grow; an error that all tokens share is kept, A 1 = 1.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.attention._drawn import softmax
from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

DEPTH, TOKENS, DRAWN = 24, 32, 2000


@claim(
    "noise-amplified",
    group="attention",
    notes=("deep-dive",),
    title="Attention of norm above 1 amplifies errors and noise",
    formula=r"\mathrm{E} \|A e\|^2 > \mathrm{E} \|e\|^2",
    plain="E‖A e‖² > E‖e‖²",
    says="Multiplying by attention matrices of norm above 1 amplifies errors and noise just as it "
    "amplifies features.",
    correction="Independent noise on the tokens becomes smaller: its mean square is multiplied by "
    "$\\|A\\|_F^2 / n \\leq 1$. What can grow, up to $\\|A\\|_2$, is an error on tokens that many "
    "queries look at; an error that all tokens share is kept as it is.",
    why="Random noise went through causal attention of 32 tokens with norms of {norm:.2f} in the mean. "
    "One matrix left {noise_after_one:.2f} of its size, {depth:.0f} of them left {noise_after_all:.2f}. "
    "The formula and the drawn noise agree to {formula_error:.1%}. Averaging makes noise smaller; in "
    "depth every token holds the noise of the first one, which is as large as it was.",
    checks=(
        Check(
            "noise_after_one",
            "claim",
            "at least",
            1.0,
            label="size of noise after one attention matrix",
            because="Amplified means larger than before; drawn noise is known to about 1 percent.",
            over="mean",
        ),
        Check(
            "factor_at_most",
            "correction",
            "at most",
            1 + 1e-12,
            label="mean square factor of noise, worst matrix",
            because="A theorem: squares of weights are at most the weights, and rows sum to one.",
        ),
        Check(
            "formula_error",
            "correction",
            "at most",
            0.05,
            label="drawn noise against the formula",
            because="The mean square of 2,000 drawn vectors is known to about 1 percent.",
        ),
        Check(
            "shared_factor",
            "correction",
            "near",
            1.0,
            within=1e-12,
            label="size of an error that all tokens share, after all matrices",
            because="An identity: rows sum to one, to 24 roundings.",
        ),
        Check(
            "looked_at_ratio",
            "correction",
            "at most",
            1 + 1e-12,
            label="growth of the worst error over what the looks at its tokens allow",
            because="A theorem, Jensen's inequality: the square is at most the mean of the column "
            "sums, weighted by the squares of the error; float64 rounding.",
        ),
    ),
    seconds=0.04,
)
def measure(seed: int) -> Measured:
    """Send noise through one and through many matrices."""
    import torch

    from leadline.numerics.spectra.spectrum import spectral_norm

    rng = np.random.default_rng([seed, 4710])
    noise = rng.standard_normal((TOKENS, DRAWN))
    sizes, factors, norms, looked_at = [1.0], [], [], []
    product = np.eye(TOKENS)
    for _ in range(DEPTH):
        logits = 2 * rng.standard_normal((TOKENS, TOKENS))
        logits[np.triu_indices(TOKENS, 1)] = -np.inf
        matrix = softmax(logits)
        product = matrix @ product
        factors.append(float(np.square(matrix).sum() / TOKENS))
        norms.append(float(spectral_norm(torch.from_numpy(matrix)).value))
        worst = np.linalg.svd(matrix)[2][0]
        allowed = float(matrix.sum(0) @ np.square(worst))
        looked_at.append(float(np.linalg.norm(matrix @ worst)) / allowed**0.5)
        sizes.append(float(np.sqrt(np.square(product @ noise).mean() / np.square(noise).mean())))
    shared = product @ np.ones(TOKENS)
    depths = tuple(float(depth) for depth in range(DEPTH + 1))
    return Measured(
        {
            "norm": float(np.mean(norms)),
            "noise_after_one": sizes[1],
            "noise_after_all": sizes[-1],
            "factor_at_most": max(factors),
            "formula_error": abs(sizes[1] / factors[0] ** 0.5 - 1),
            "shared_factor": float(np.linalg.norm(shared)) / TOKENS**0.5,
            "looked_at_ratio": max(looked_at),
            "depth": float(DEPTH),
        },
        Picture("attention matrices", "size of the noise", {"drawn noise": (depths, tuple(sizes))}),
    )
