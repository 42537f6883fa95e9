"""|A|_{1,inf} = sqrt(|A|_1 |A|_inf) is called a matrix norm.

A norm obeys the triangle inequality. With A the matrix whose first row is ones and B whose first
column is ones, of size 100: |A| = |B| = 10 and |A + B| = 101. What it does have: it is homogeneous,
submultiplicative (both factors are) and never below the spectral norm, since |A|_2^2 <= |A|_1 |A|_inf
(Schur's test).
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

SIZE = 100
DRAWS = 200


@claim(
    "composite-is-a-norm",
    group="collapse",
    notes=("deep-dive",),
    title="The square root of the 1-norm times the ∞-norm is a matrix norm",
    formula=r"\|A\|_{1,\infty} = \sqrt{\|A\|_1 \|A\|_\infty}, \quad \|A + B\|_{1,\infty} \le \|A\|_{1,\infty} + \|B\|_{1,\infty}",
    plain="‖A‖₁,∞ = √(‖A‖₁‖A‖_∞), ‖A + B‖₁,∞ ≤ ‖A‖₁,∞ + ‖B‖₁,∞",
    says="The theorems measure matrices by the square root of the product of the 1-norm and the "
    "∞-norm, and call it a matrix norm.",
    correction="It is no norm: its triangle inequality fails. It is submultiplicative and never below "
    "the spectral norm, which is what a proof for one head needs.",
    why="A matrix with ones in its first row measures 10, one with ones in its first column "
    "measures 10, and their sum measures {sum:.0f}: {triangle:.2f} times what a norm allows. The first "
    "matrix is small by its columns, the second by its rows, the sum by neither. A proof may "
    "multiply in this measure, but it may not add heads in it.",
    checks=(
        Check(
            "triangle",
            "claim",
            "at most",
            1.0 + 1e-12,
            label="|A + B| over |A| + |B|",
            because="The triangle inequality is part of what a norm is; 1e-12 is rounding.",
        ),
        Check(
            "product",
            "correction",
            "at most",
            1.0 + 1e-12,
            label="|A B| over |A| |B|, the worst draw",
            because="Both factors under the root are submultiplicative; 1e-12 is rounding.",
        ),
        Check(
            "spectral",
            "correction",
            "at most",
            1.0 + 1e-12,
            label="spectral norm over the measure, the worst draw",
            because="Schur's test; 1e-12 is rounding.",
        ),
    ),
    seconds=0.02,
)
def measure(seed: int) -> Measured:
    """The two matrices, then products and singular values of drawn ones."""
    import numpy as np
    import torch

    from leadline.instruments.collapse.composite import composite

    def size(a: np.ndarray) -> float:
        return float(composite(torch.from_numpy(a)))

    row, column = np.zeros((SIZE, SIZE)), np.zeros((SIZE, SIZE))
    row[0], column[:, 0] = 1.0, 1.0
    rng = np.random.default_rng([seed, 60])
    product = spectral = 0.0
    for _ in range(DRAWS):
        a, b = (rng.normal(size=(6, 6)) * rng.exponential(size=(6, 1)) ** 3 for _ in range(2))
        product = max(product, size(a @ b.T) / (size(a) * size(b.T.copy())))
        spectral = max(spectral, float(np.linalg.svd(a, compute_uv=False)[0]) / size(a))
    return Measured(
        {
            "sum": size(row + column),
            "triangle": size(row + column) / (size(row) + size(column)),
            "product": product,
            "spectral": spectral,
        }
    )
