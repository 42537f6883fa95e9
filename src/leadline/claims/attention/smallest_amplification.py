"""The smallest amplification of an attention matrix is 1.

The note goes from "the norm is at least 1" to "the smallest amplification is 1". The smallest
amplification of a matrix is its smallest singular value, min |A x| / |x|. 1 bounds the LARGEST one
from below. Uniform attention maps every vector with entries that sum to zero to zero.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.attention._drawn import attention_matrices
from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

COUNT = 300


@claim(
    "smallest-amplification",
    group="attention",
    notes=("deep-dive",),
    title="The smallest amplification of an attention matrix is 1",
    formula=r"\min_{x \neq 0} \frac{\|A x\|_2}{\|x\|_2} = 1",
    plain="min ‖A x‖ / ‖x‖ = 1",
    says="A row-stochastic matrix cannot shorten all vectors, so the smallest factor of "
    "amplification is 1.",
    correction="1 is the least value of the largest amplification. The smallest is the smallest "
    "singular value, which is at most 1 and may be 0.",
    why="Of {count:.0f} drawn attention matrices the smallest singular value was {typical_least} "
    "in the median and {largest_least:.4f} at the most; that of uniform attention is "
    "{uniform_least}. A matrix that averages makes differences smaller. The largest singular value "
    "is what never falls below 1: {least_norm:.6f} was the least.",
    checks=(
        Check(
            "typical_least",
            "claim",
            "at least",
            1 - 1e-12,
            label="smallest amplification, median of the drawn matrices",
            because="The sentence says 1 for every one of them; singular values are right to 1e-14.",
            log=True,
        ),
        Check(
            "largest_least",
            "correction",
            "at most",
            1 + 1e-12,
            label="smallest amplification, largest of all",
            because="The product of all singular values is |det A|, at most 1 for a row-stochastic "
            "matrix, so the smallest is at most 1.",
        ),
        Check(
            "least_norm",
            "correction",
            "at least",
            1 - 1e-12,
            label="largest amplification, least of all",
            because="The vector of equal entries keeps its length.",
        ),
        Check(
            "uniform_least",
            "correction",
            "at most",
            1e-12,
            label="smallest amplification of uniform attention",
            because="A matrix of rank one has the singular value 0, to rounding.",
        ),
    ),
    seconds=0.06,
)
def measure(seed: int) -> Measured:
    """All singular values of the drawn matrices and of uniform attention."""
    import torch

    from leadline.numerics.spectra.spectrum import singular_values

    rng = np.random.default_rng([seed, 4640])
    values = [
        singular_values(torch.from_numpy(matrix)).numpy()
        for matrix in attention_matrices(rng, COUNT)
    ]
    uniform = singular_values(torch.full((8, 8), 1 / 8, dtype=torch.float64))
    return Measured(
        {
            "typical_least": float(np.median([one[-1] for one in values])),
            "largest_least": max(float(one[-1]) for one in values),
            "least_norm": min(float(one[0]) for one in values),
            "uniform_least": float(uniform[-1]),
            "count": float(COUNT),
        }
    )
