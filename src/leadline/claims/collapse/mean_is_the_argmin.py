"""res(X) = X - 1x' with x the minimiser of a norm, said to be the mean.

The note does not say which norm. For the Frobenius norm the mean is the minimiser: that is the part
"claim". All its theorems use |.|_{1,inf} = sqrt(|.|_1 |.|_inf), where a reader puts the same
sentence: there the mean is not the minimiser. X = (0, 0, 0, 1)' has 1.061 at the mean and 1 at 0.
Since |I - 11'/n| = 2 (1 - 1/n) in both factors, the mean costs at most 2 (1 - 1/n).
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

DRAWS = 20


@claim(
    "mean-is-the-argmin",
    group="collapse",
    notes=("deep-dive",),
    title="The token that is nearest to all tokens is their mean",
    formula=r"\frac{1}{n} \mathbf{1}^T X = \mathrm{argmin}_x \| X - \mathbf{1} x^T \|",
    plain="mean token = argmin over x of ‖X − 1xᵀ‖",
    says="The residual takes away the vector that makes what is left smallest, and this vector is "
    "the mean of the tokens.",
    correction="It is the mean for the Frobenius norm. For $\\sqrt{\\|A\\|_1 \\|A\\|_\\infty}$, which the "
    "theorems use, it is not; there the mean gives at most $2(1 - 1/n)$ times the smallest residual.",
    why="In the Frobenius norm no other vector came below the mean: the best ratio is {frobenius}. "
    "For the four tokens 0, 0, 0, 1 the measure of the theorems is {composite:.4f} times as large at "
    "the mean as at 0. Least squares belong to the mean, largest sums of absolute values do not. "
    "Over random tokens the mean used up to {share:.2f} of the allowed factor $2(1 - 1/n)$.",
    checks=(
        Check(
            "frobenius",
            "claim",
            "at most",
            1.0,
            label="Frobenius residual at the mean over that elsewhere",
            because="At a minimiser nothing is smaller: the ratio cannot exceed 1.",
        ),
        Check(
            "composite",
            "reach",
            "at most",
            1.0 + 1e-9,
            label="composite residual at the mean over the smallest",
            because="At a minimiser the ratio is 1; 1e-9 is far above rounding.",
        ),
        Check(
            "share",
            "correction",
            "at most",
            1.0 + 1e-12,
            label="the same ratio over 2(1 - 1/n), the worst draw",
            because="Both norms of I - 11'/n are 2(1 - 1/n), so the ratio is a theorem.",
        ),
    ),
    seconds=0.5,
)
def measure(seed: int) -> Measured:
    """Try other vectors in the Frobenius norm, and search for the least composite residual."""
    import numpy as np
    import torch

    from leadline.claims.collapse._stacks import composite, residual
    from leadline.instruments.collapse.composite import smallest_composite

    rng = np.random.default_rng([seed, 59])
    frobenius, share = 0.0, 0.0
    for _ in range(DRAWS):
        tokens = int(rng.integers(3, 8))
        x = rng.normal(size=(tokens, 3)) * rng.exponential(size=(tokens, 1))
        rest = residual(x)
        for size in (1e-3, 1e-1, 1.0):
            other = rest - size * rng.normal(size=(1, 3))
            frobenius = max(frobenius, float(np.linalg.norm(rest) / np.linalg.norm(other)))
        least = float(smallest_composite(torch.from_numpy(x).unsqueeze(0)).value)
        share = max(share, composite(rest) / least / (2.0 * (1.0 - 1.0 / tokens)))
    four = np.array([[0.0], [0.0], [0.0], [1.0]])
    least = float(smallest_composite(torch.from_numpy(four).unsqueeze(0)).value)
    return Measured(
        {"frobenius": frobenius, "composite": composite(residual(four)) / least, "share": share}
    )
