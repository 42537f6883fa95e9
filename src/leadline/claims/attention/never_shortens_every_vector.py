"""A row-stochastic matrix never shortens every vector: it keeps the vector of ones.

A 1 = 1, so some vector keeps its length whatever the weights are. Checked on drawn matrices, by the
vector of ones itself and by the least spectral norm of all.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.attention._drawn import attention_matrices
from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

COUNT = 300


@claim(
    "never-shortens-every-vector",
    group="attention",
    notes=("deep-dive",),
    title="An attention matrix can never shorten all vectors",
    formula=r"A u = u, \quad u = \frac{1}{\sqrt{n}} (1, \dots, 1)^\top",
    plain="A u = u for u = (1, …, 1)' / √n",
    says="Since rows sum to one, the vector of equal entries is mapped to itself, so a row-stochastic "
    "matrix cannot shorten all vectors.",
    correction="",
    why="{count:.0f} attention matrices were drawn. Each keeps the vector of equal entries, to "
    "{ones_error}, and the least of their norms is {least_norm:.6f}. Averaging equal numbers gives "
    "the same number again.",
    checks=(
        Check(
            "ones_error",
            "claim",
            "at most",
            1e-14,
            label="change of the vector of equal entries",
            because="Sums of up to 24 float64 numbers that add up to one.",
            log=True,
        ),
        Check(
            "least_norm",
            "claim",
            "at least",
            1 - 1e-12,
            label="least spectral norm of all",
            because="A consequence; singular values are right to 1e-14.",
        ),
    ),
    seconds=0.3,
)
def measure(seed: int) -> Measured:
    """Map the vector of equal entries; take the least norm."""
    import torch

    from leadline.numerics.spectra.spectrum import spectral_norm

    rng = np.random.default_rng([seed, 4630])
    errors, norms = [], []
    for matrix in attention_matrices(rng, COUNT):
        u = np.full(len(matrix), len(matrix) ** -0.5)
        errors.append(float(np.abs(matrix @ u - u).max()))
        norms.append(float(spectral_norm(torch.from_numpy(matrix)).value))
    return Measured({"ones_error": max(errors), "least_norm": min(norms), "count": float(COUNT)})
