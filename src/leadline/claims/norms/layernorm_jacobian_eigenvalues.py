"""The eigenvalues of the note's matrix I - 11'/d, and those of the Jacobian itself.

The sentence is about the matrix that the note writes down: one eigenvalue 0, the others below 1.
I - 11'/d is an orthogonal projection: its eigenvalues are 0 once and exactly 1 the other d - 1
times. The Jacobian of LayerNorm without eps has two singular values 0 (along 1 and along xh) and
d - 2 equal to 1/s; `norm_singular_values` has them with eps.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

WIDTH, TOKENS = 64, 8
ZERO = 1e-9


@claim(
    "layernorm-jacobian-eigenvalues",
    group="norms",
    notes=("shortcuts",),
    title="I − 11ᵀ/d has one eigenvalue 0, and all the others are below 1",
    formula=r"\lambda_1 = 0, \quad \lambda_2, \dots, \lambda_d < 1",
    plain="λ₁ = 0, λ₂ … λ_d < 1",
    says="The matrix that stands for the Jacobian of LayerNorm has one eigenvalue 0, and the "
    "other ones are smaller than 1, so multiplying by it many times shrinks a gradient.",
    correction="The matrix $I - \\frac{1}{d} \\mathbf{1} \\mathbf{1}^T$ has the eigenvalue 0 once "
    "and exactly 1 the other $d - 1$ times: it never shrinks what it keeps. The true Jacobian has "
    "two singular values 0 (without $\\varepsilon$) and $d - 2$ equal to $1/s$, which may be above "
    "or below 1.",
    why="Subtracting the mean is a projection: done twice it is the same as done once, so its "
    "eigenvalues can only be 0 and 1. The largest of the others was {largest:.6f} and the smallest "
    "{smallest_other:.6f}. The Jacobian of LayerNorm itself has {zeros_of_jacobian:.0f} zeros: "
    "one for the mean and one for the length of the token, which are both lost.",
    checks=(
        Check(
            "zeros", "claim", "near", 1.0, within=0.1,
            label="eigenvalues of I − 11ᵀ/d that are 0",
            because="A count: the note says one.",
        ),
        Check(
            "largest", "claim", "at most", 0.999,
            label="largest eigenvalue of I − 11ᵀ/d",
            because="Below 1 is read as at least a thousandth below: closer to 1 nothing would "
            "shrink in a hundred layers.",
        ),
        Check(
            "smallest_other", "correction", "near", 1.0, within=1e-12,
            label="smallest eigenvalue of I − 11ᵀ/d that is not 0",
            because="A projection has eigenvalues 0 and 1; the rest is rounding of 64 features.",
        ),
        Check(
            "zeros_of_jacobian", "correction", "near", 2.0, within=0.1,
            label="singular values of J that are 0, without ε",
            because="A count: the directions 1 and x̂.",
        ),
        Check(
            "values_error", "correction", "at most", 1e-10,
            label="singular values of J: formula against SVD",
            because="An identity for tokens with eps 1e-5, in float64 relative to the largest.",
            log=True,
        ),
    ),
    source="",
    seconds=0.05,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Eigenvalues by numpy, singular values of the Jacobian by autograd and SVD."""
    from leadline.claims.norms._layernorm import by_autograd, tokens
    from leadline.theory.norm_jacobian import norm_singular_values

    values = np.linalg.eigvalsh(np.eye(WIDTH) - 1.0 / WIDTH)
    others = values[np.abs(values) > ZERO]
    counts: list[int] = []
    errors: list[float] = []
    spectrum = np.zeros(WIDTH)
    for x in tokens(seed, 24, count=TOKENS, width=WIDTH, std=1.5):
        bare = np.linalg.svd(by_autograd(x, eps=0.0), compute_uv=False)
        counts.append(int((bare < ZERO * bare[0]).sum()))
        spectrum = np.linalg.svd(by_autograd(x), compute_uv=False)
        written = norm_singular_values(x, norm="layernorm")
        errors.append(float(np.abs(np.sort(written)[::-1] - spectrum).max() / spectrum[0]))
    ranks = tuple(float(rank) for rank in range(1, WIDTH + 1))
    return Measured(
        {
            "zeros": float((np.abs(values) <= ZERO).sum()),
            "largest": float(values.max()),
            "smallest_other": float(others.min()),
            "zeros_of_jacobian": float(np.mean(counts)),
            "values_error": max(errors),
        },
        Picture(
            "rank",
            "singular value",
            {
                "I − 11ᵀ/d": (ranks, tuple(float(v) for v in values[::-1])),
                "J of LayerNorm, std 1.5": (ranks, tuple(float(v) for v in spectrum)),
            },
        ),
    )
