"""In most cases |A| >= 1, so attention is expansive.

"Expansive" as the note defines it: the longest semi-axis is above 1. "In most cases" is read as more
than half of the drawn matrices. Reach: that a vector usually becomes longer ("tends to spread", the
note adds). The mean square amplification over all directions is |A|_F^2 / n, and
|A|_F^2 = sum A_ij^2 <= sum A_ij = n: at most 1, for every attention matrix.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.attention._drawn import attention_matrices
from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

COUNT = 300


@claim(
    "mostly-expansive",
    group="attention",
    notes=("deep-dive",),
    title="In most cases attention is expansive",
    formula=r"\|A\|_2 > 1",
    plain="‖A‖₂ > 1",
    says="In most cases the norm is above 1 and attention is expansive: it tends to spread.",
    correction="The norm is above 1 except for doubly stochastic matrices, so some direction becomes "
    "longer. A typical direction becomes shorter: the mean square amplification over all directions "
    "is $\\|A\\|_F^2 / n \\leq 1$.",
    why="{expansive_share:.1%} of the drawn matrices have a norm above 1. Over all directions the root "
    "mean square amplification is {typical_amplification:.2f} in the mean and "
    "{largest_amplification:.4f} at the most. Averages of unrelated numbers are smaller than the "
    "numbers; only what lies on tokens that many queries look at becomes longer, and what "
    "all tokens share is kept.",
    checks=(
        Check(
            "expansive_share",
            "claim",
            "at least",
            0.5,
            label="share of matrices with a norm above 1",
            because="In most cases is read as in more than half.",
        ),
        Check(
            "typical_amplification",
            "reach",
            "at least",
            1.0,
            label="root mean square amplification over all directions",
            because="To spread, a typical vector would have to become longer.",
            over="mean",
        ),
        Check(
            "largest_amplification",
            "correction",
            "at most",
            1 + 1e-12,
            label="the same, largest of all matrices",
            because="A theorem: squares of weights are at most the weights, and rows sum to one.",
        ),
    ),
    seconds=0.3,
)
def measure(seed: int) -> Measured:
    """Norms, and the amplification of a random direction."""
    import torch

    from leadline.numerics.spectra.spectrum import spectral_norm

    rng = np.random.default_rng([seed, 4660])
    norms, typical = [], []
    for matrix in attention_matrices(rng, COUNT):
        norms.append(float(spectral_norm(torch.from_numpy(matrix)).value))
        typical.append(float(np.sqrt(np.square(matrix).sum() / len(matrix))))
    return Measured(
        {
            "expansive_share": float(np.mean(np.array(norms) > 1 + 1e-9)),
            "typical_amplification": float(np.mean(typical)),
            "largest_amplification": max(typical),
        }
    )
