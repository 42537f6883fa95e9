"""In the backward chain A' is nearly non-expansive too, so products neither explode nor vanish.

Claim: |A'| is near 1 (read as at most 1.1) in trained pre-norm attention, and the norm of a product
over layers neither grows nor decays exponentially. |A'| = |A|, which is 1.5 to 1.9 there; the norm of
a product lies between 1 and sqrt(n) at any depth, pre-norm or not. Reach: that every gradient keeps
its size. The product of averaging patterns tends to a matrix of rank one, pi 1', so a gradient that
sums to zero over the tokens vanishes. Drawn causal, as in the models of the note.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from leadline.claims.attention._drawn import largest, softmax
from leadline.claims.attention._trained import TRAINED
from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

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
    "mask. Products are at most √n at any depth with any placement of norms. The sum of the "
    "gradients over the tokens is kept; for averaging patterns what entered with sum zero decays "
    "exponentially: in depth every token's gradient is spread over the input tokens in the same way.",
    why="In a trained pre-norm model the norm of a head is {trained_norm:.2f} in the mean, and "
    "the product of its 6 layers has the norm {trained_product:.2f}. The product of 96 drawn causal "
    "matrices of 16 tokens has the norm {product_norm:.2f} and cannot exceed √16 = 4. A gradient whose "
    "sum over the tokens is zero is left with {difference_left} of its size: after many averages every "
    "output blames the input tokens in the same proportions.",
    checks=(
        Check(
            "trained_norm", "claim", "at most", 1.1,
            label="norm of attention in a trained pre-norm model",
            because="Nearly non-expansive is read as at most a tenth above 1.", over="mean",
        ),
        Check(
            "least_product_norm", "claim", "at least", 1 - 1e-12,
            label="norm of the product, least of all depths",
            because="Not decaying; rows of the product sum to one, so its norm is at least 1.",
        ),
        Check(
            "difference_left", "reach", "at least", 1e-3,
            label="size of a gradient of sum zero after 96 layers",
            because="Not decaying is read as keeping a thousandth.", log=True,
        ),
        Check(
            "product_ratio", "correction", "at most", 1 + 1e-12,
            label="norm of the product over √n, worst depth",
            because="A theorem: rows of the product sum to one. For the drawn matrices and the trained "
            "model.",
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

    def limit(tokens: int) -> float:
        found = BOUNDS.get("product")().value(AttentionFacts(queries=tokens, keys=tokens))
        assert found is not None
        return found

    trained = trials[TRAINED.name]
    trained_products = trained["pre"]["product_norm"]
    rng = np.random.default_rng([seed, 4950])
    gradient = rng.standard_normal(TOKENS)
    total = float(gradient.sum())
    uneven = gradient - total / TOKENS
    size = float(np.linalg.norm(uneven))
    product = np.eye(TOKENS)
    norms, left, transposed = [1.0], [1.0], []
    for _ in range(DEPTH):
        logits = 1.5 * rng.standard_normal((TOKENS, TOKENS))
        logits[np.triu_indices(TOKENS, 1)] = -np.inf
        matrix = softmax(logits)
        transposed.append(abs(largest(matrix.T.copy()) - largest(matrix)))
        product = product @ matrix.T
        norms.append(largest(product))
        left.append(float(np.linalg.norm(product @ uneven)) / size)
    sent = product @ gradient
    depths = tuple(float(depth) for depth in range(DEPTH + 1))
    return Measured(
        {
            "trained_norm": float(np.mean(trained["pre"]["spectral_norm"])),
            "trained_product": trained_products[-1],
            "least_product_norm": min(*norms, *trained_products),
            "product_norm": norms[-1],
            "product_ratio": max(
                max(norms) / limit(TOKENS), max(trained_products) / limit(trained["tokens"])
            ),
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
