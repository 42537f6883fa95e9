"""Repeated multiplication by matrices of norm above 1 amplifies features until they overflow.

The note says it of the attention weights: features are amplified again and again, later layers
saturate or overflow, gradients explode. A product of row-stochastic matrices is row-stochastic, so
its norm is at most sqrt(n) at any depth (bound `product` of the catalog), whatever the norms of the
factors multiply to. "Exploding" is read as a thousandfold. What does explode is W_V W_O with a gain
above 1: the correction, with X -> A X W_V as the Kronecker product of the two.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.attention._drawn import softmax
from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

DEPTH, TOKENS, FEATURES, GAIN = 96, 32, 4, 1.1


@claim(
    "repeated-attention-explodes",
    group="attention",
    notes=("deep-dive",),
    title="Attention matrices of norm above 1 make features explode layer by layer",
    formula=r"\|A_L \cdots A_1\|_2 \sim \prod_l \|A_l\|_2",
    plain="‖A_L ⋯ A_1‖ grows like Π ‖A_l‖",
    says="If features are multiplied by attention matrices of norm above 1 again and again, they are "
    "amplified repeatedly, which leads to saturation, overflow and exploding gradients.",
    correction="A product of attention matrices is an attention matrix: $\\|A_L \\cdots A_1\\|_2 \\leq "
    "\\sqrt{n}$ at any depth. Only the weights $W_V$ and $W_O$ can make attention explode.",
    why="96 causal attention matrices of 32 tokens were multiplied. Their norms multiply to "
    "{product_of_norms}; the norm of their product is {product_norm:.2f} and cannot exceed "
    "√32 = 5.66, because averages of averages are averages. With values multiplied by 1.1 in each "
    "layer the same product grows to {grown_by_values}.",
    checks=(
        Check(
            "product_norm",
            "claim",
            "at least",
            1e3,
            label="norm of the product of 96 matrices",
            because="Exploding is read as growing at least a thousandfold.",
            log=True,
        ),
        Check(
            "product_ratio",
            "correction",
            "at most",
            1 + 1e-12,
            label="that norm over √n, worst over the depths",
            because="A theorem: rows of the product sum to one; rounding of 96 products is 1e-14.",
        ),
        Check(
            "attacked_ratio",
            "correction",
            "at most",
            1 + 1e-12,
            label="products of three over √n, pushed uphill",
            because="The same theorem, for matrices found by gradient ascent.",
        ),
        Check(
            "grown_by_values",
            "correction",
            "at least",
            1e3,
            label="norm with values multiplied by 1.1 in each layer",
            because="1.1 to the power 96 is 9,400; exploding is read as a thousandfold.",
            log=True,
        ),
    ),
    source="products of row-stochastic matrices are row-stochastic",
    seconds=0.3,
)
def measure(seed: int) -> Measured:
    """Multiply, layer by layer."""
    import torch

    from leadline.instruments.attacks.attention import optimised_attack
    from leadline.numerics.spectra.spectrum import spectral_norm
    from leadline.theory import BOUNDS, AttentionFacts

    def norm(matrix: np.ndarray) -> float:
        return float(spectral_norm(torch.from_numpy(matrix)).value)

    rng = np.random.default_rng([seed, 4700])
    limit = BOUNDS.get("product")().value(AttentionFacts(queries=TOKENS, keys=TOKENS))
    assert limit is not None
    product, values, of_norms = np.eye(TOKENS), np.eye(FEATURES), 1.0
    norms, norms_multiplied = [1.0], [1.0]
    for _ in range(DEPTH):
        logits = 2 * rng.standard_normal((TOKENS, TOKENS))
        logits[np.triu_indices(TOKENS, 1)] = -np.inf
        matrix = softmax(logits)
        product = matrix @ product
        values = values @ (GAIN * np.linalg.qr(rng.standard_normal((FEATURES, FEATURES)))[0])
        of_norms *= norm(matrix)
        norms.append(norm(product))
        norms_multiplied.append(of_norms)
    attacked = optimised_attack("causal", steps=40, seed=4700 + seed, starts=12, goal="product")
    depths = tuple(float(depth) for depth in range(DEPTH + 1))
    return Measured(
        {
            "product_norm": norms[-1],
            "product_of_norms": of_norms,
            "product_ratio": max(norms) / limit,
            "attacked_ratio": attacked["product"].within.ratio,
            "grown_by_values": norm(np.kron(product, values)),
        },
        Picture(
            "layers",
            "norm",
            {
                "norm of the product": (depths, tuple(norms)),
                "product of the norms": (depths, tuple(norms_multiplied)),
                "square root of n": (depths, (limit,) * len(depths)),
            },
            y_log=True,
            faint=("square root of n",),
        ),
    )
