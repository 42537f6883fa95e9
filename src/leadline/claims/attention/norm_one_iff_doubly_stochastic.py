"""|A|_2 = 1 exactly when the columns sum to one too.

If c = 1 then |A| <= sqrt(c_max) = 1. If not, A' u = c / sqrt(n) gives

    |A|_2 >= |c| / sqrt(n) = sqrt(1 + var(c)) > 1,

with var(c) the variance of the column sums, whose mean is 1. Both halves are measured: doubly
stochastic matrices by balancing, others against that lower bound.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.attention._drawn import attention_matrices, balanced
from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

COUNT = 200
UNEVEN = 0.01
"""The standard deviation of column sums from which on they count as uneven."""


@claim(
    "norm-one-iff-doubly-stochastic",
    group="attention",
    notes=("deep-dive",),
    title="The norm is 1 exactly when the columns sum to one as well",
    formula=r"\|A\|_2 = 1 \iff c_{\max} = 1",
    plain="‖A‖₂ = 1 ⟺ c_max = 1",
    says="Only when the largest column sum is 1, so that the matrix is column-stochastic too, does "
    "the longest semi-axis have its least value 1.",
    correction="",
    why="Balanced matrices, rows and columns summing to one, have the norm 1 to {balanced_error}. "
    "All others lie above it: the norm is at least the root of one plus the variance of the column "
    "sums, and the ratio of the two was {variance_ratio:.6f} at the most. Among {count:.0f} drawn "
    "matrices those with uneven columns exceed 1 by {least_excess} at least.",
    checks=(
        Check(
            "balanced_error",
            "claim",
            "at most",
            1e-10,
            label="norm of balanced matrices, distance from 1",
            because="Balancing ends with column sums right to about 1e-12.",
            log=True,
        ),
        Check(
            "variance_ratio",
            "claim",
            "at most",
            1 + 1e-12,
            label="√(1 + variance of column sums) over the norm",
            because="A theorem: uneven columns force the norm above 1; singular values are right to "
            "1e-14.",
        ),
        Check(
            "least_excess",
            "claim",
            "at least",
            4.9e-5,
            label="norm minus 1, least where column sums spread by a hundredth",
            because="The same theorem at a standard deviation of 0.01: the root of 1.0001 is 1 + "
            "5.0e-5; rounding is 1e-14.",
            log=True,
        ),
    ),
    seconds=0.3,
)
def measure(seed: int) -> Measured:
    """Balanced matrices, and drawn ones against the variance of their column sums."""
    import torch

    from leadline.numerics.spectra.spectrum import spectral_norm

    def norm(matrix: np.ndarray) -> float:
        return float(spectral_norm(torch.from_numpy(matrix)).value)

    rng = np.random.default_rng([seed, 4650])
    even = [norm(balanced(rng, n)) for n in (2, 3, 5, 9, 16)]
    drawn = [(norm(one), float(one.sum(0).var())) for one in attention_matrices(rng, COUNT)]
    return Measured(
        {
            "balanced_error": max(abs(one - 1) for one in even),
            "variance_ratio": max((1 + var) ** 0.5 / one for one, var in drawn),
            "least_excess": min(one - 1 for one, var in drawn if var > UNEVEN**2),
            "count": float(COUNT),
        }
    )
