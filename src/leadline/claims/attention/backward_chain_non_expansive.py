"""In the backward chain A' is nearly non-expansive too, so products neither explode nor vanish.

Three statements: |A'| is near 1 (read as at most 1.1) in trained pre-norm attention; a product over
layers does not grow; it does not decay. |A'| = |A|, which is 1.5 to 1.9 there; products are bounded by
sqrt(n) at any depth, pre-norm or not; and the gradient's differences between tokens do decay: the
product tends to a matrix of rank one, so a gradient that sums to zero over the tokens vanishes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from leadline.analysis.claim import Check, Picture
from leadline.claims._entry import Measured, claim
from leadline.claims.attention._drawn import largest, softmax
from leadline.claims.attention._trained import TRAINED

DEPTH, TOKENS = 96, 16


@claim(
    "backward-chain-non-expansive",
    group="attention",
    notes=("deep-dive",),
    title="Backwards the transposed attention is nearly non-expansive, so gradients keep their size",
    formula=r"\|A^\top\|_2 \approx 1, \quad \|A_1^\top \cdots A_L^\top\|_2 = O(1)",
    plain="‖A'‖ ≈ 1, products of them neither grow nor decay",
    says="In pre-norm models the transposed attention matrices of the backward pass are nearly "
    "non-expansive as well; products over layers neither grow nor decay exponentially.",
    correction="The transposed matrix has the same norm as the matrix, well above 1 under a causal "
    "mask. Products stay below √n at any depth with any placement of norms. What all tokens' gradients "
    "sum to is kept; their differences decay exponentially, and only the skip carries them.",
    why="In a trained pre-norm model the norm of a head is {trained_norm:.2f} in the mean. The product "
    "of 96 drawn matrices of 16 tokens has the norm {product_norm:.2f}, below √16 = 4. A gradient whose "
    "sum over the tokens is zero is left with {difference_left} of its size: averaging in the forward "
    "pass gives all earlier tokens the same share of blame.",
    checks=(
        Check(
            "trained_norm", "claim", "at most", 1.1,
            label="norm of attention in a trained pre-norm model",
            because="Nearly non-expansive is read as at most a tenth above 1.", over="mean",
        ),
        Check(
            "difference_left", "claim", "at least", 1e-3,
            label="size of a gradient of sum zero after 96 layers",
            because="Not decaying is read as keeping a thousandth.", log=True,
        ),
        Check(
            "product_ratio", "correction", "at most", 1 + 1e-12,
            label="norm of the product over √n, worst depth",
            because="A theorem: rows of the product sum to one.",
        ),
        Check(
            "sum_error", "correction", "at most", 1e-12,
            label="change of the sum of gradients over the tokens",
            because="1' A' = (A 1)' = 1': an identity, 96 roundings.", log=True,
        ),
        Check(
            "transposed_error", "correction", "at most", 1e-12,
            label="norm of the transposed matrix against that of the matrix",
            because="An identity of singular values, to rounding.", log=True,
        ),
    ),
    seconds=0.01,
    needs=(TRAINED,),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Send gradients back through drawn matrices."""
    from leadline.theory import BOUNDS, AttentionFacts

    limit = BOUNDS.get("product")().value(AttentionFacts(queries=TOKENS, keys=TOKENS))
    assert limit is not None
    rng = np.random.default_rng([seed, 4950])
    gradient = rng.standard_normal(TOKENS)
    total = float(gradient.sum())
    uneven = gradient - total / TOKENS
    size = float(np.linalg.norm(uneven))
    product = np.eye(TOKENS)
    norms, left, transposed = [1.0], [1.0], []
    for _ in range(DEPTH):
        matrix = softmax(1.5 * rng.standard_normal((TOKENS, TOKENS)))
        transposed.append(abs(largest(matrix.T.copy()) - largest(matrix)))
        product = product @ matrix.T
        norms.append(largest(product))
        left.append(float(np.linalg.norm(product @ uneven)) / size)
    sent = product @ gradient
    depths = tuple(float(depth) for depth in range(DEPTH + 1))
    return Measured(
        {
            "trained_norm": float(np.mean(trials[TRAINED.name]["pre"]["spectral_norm"])),
            "product_norm": norms[-1],
            "product_ratio": max(norms) / limit,
            "difference_left": left[-1],
            "sum_error": abs(float(sent.sum()) - total),
            "transposed_error": max(transposed),
        },
        Picture(
            "layers",
            "size",
            {
                "norm of the product": (depths[::2], tuple(norms[::2])),
                "gradient of sum zero": (depths[::2], tuple(max(one, 1e-18) for one in left[::2])),
            },
            y_log=True,
        ),
    )
