"""The step by Jensen's inequality: |A x|^2 <= sum_j c_j x_j^2, c_j the column sums.

For one row (sum_j A_ij x_j)^2 <= sum_j A_ij x_j^2 because the square is convex and the weights of a
row sum to one; summed over rows. Attacked with the worst x there is: the largest eigenvalue of
diag(c)^-1/2 A'A diag(c)^-1/2 is the largest ratio of both sides over all x.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.attention._drawn import attention_matrices
from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

COUNT = 400


@claim(
    "jensen-step",
    group="attention",
    notes=("deep-dive",),
    title="By Jensen's inequality ‖A x‖² is at most the column sums weighted by x²",
    formula=r"\sum_i \left( \sum_j A_{ij} x_j \right)^2 \leq \sum_j \left( \sum_i A_{ij} \right) "
    r"x_j^2",
    plain="Σ_i (Σ_j A_ij x_j)² ≤ Σ_j (Σ_i A_ij) x_j²",
    says="The square of an average is at most the average of the squares; summed over the rows of a "
    "row-stochastic matrix it gives column sums.",
    correction="",
    why="For {count:.0f} drawn attention matrices the x was computed that makes the left side largest "
    "beside the right one. The ratio is {largest_ratio:.6f} at the most: never above 1, and 1 is "
    "reached by equal entries of x, for which both sides are n.",
    checks=(
        Check(
            "largest_ratio",
            "claim",
            "at most",
            1 + 1e-12,
            label="left side over right side, worst x",
            because="A theorem; eigenvalues of 24 by 24 matrices in float64 are right to 1e-14.",
        ),
        Check(
            "ratio_of_ones",
            "claim",
            "near",
            1.0,
            within=1e-12,
            label="the same for equal entries",
            because="Rows sum to one, so both sides are n, to rounding.",
        ),
    ),
    source="Jensen 1906; Schur 1911",
    seconds=0.03,
)
def measure(seed: int) -> Measured:
    """The worst x of every matrix, as an eigenvalue."""
    rng = np.random.default_rng([seed, 4610])
    ratios, ones = [], []
    for matrix in attention_matrices(rng, COUNT):
        columns = matrix.sum(0)
        scaled = matrix / np.sqrt(columns)
        ratios.append(float(np.linalg.eigvalsh(scaled.T @ scaled)[-1]))
        ones.append(float(np.square(matrix.sum(1)).sum() / columns.sum()))
    return Measured(
        {
            "largest_ratio": max(ratios),
            "ratio_of_ones": max(ones, key=lambda one: abs(one - 1)),
            "count": float(COUNT),
        }
    )
