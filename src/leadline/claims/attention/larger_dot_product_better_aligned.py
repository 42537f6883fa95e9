"""The larger the product of query and key, the better they are aligned.

<q, k> = |q| |k| cos: for one query the order of the products is that of |k| cos, not of the cosine.
The note states it for all pairs of keys and queries. Read so: of two keys of a query the one with
the larger product has the larger cosine. Keys are those of a random head on normed tokens, whose
lengths differ because W_K is not orthogonal. With keys of one length (a norm on the keys) it is
right.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check


def _agreement(query: np.ndarray, key: np.ndarray) -> float:
    """The share of pairs of keys that product and cosine order alike."""
    product = query @ key.T
    cosine = product / np.linalg.norm(query, axis=1)[:, None] / np.linalg.norm(key, axis=1)
    i, j = np.triu_indices(len(key), 1)
    agree = (product[:, i] - product[:, j]) * (cosine[:, i] - cosine[:, j]) > 0
    return float(agree.mean())


@claim(
    "larger-dot-product-better-aligned",
    group="attention",
    notes=("deep-dive",),
    title="A larger dot product means that key and query are better aligned",
    formula=r"\langle q, k_1 \rangle > \langle q, k_2 \rangle \Rightarrow "
    r"\cos(q, k_1) > \cos(q, k_2)",
    plain="⟨q, k₁⟩ > ⟨q, k₂⟩ ⇒ cos(q, k₁) > cos(q, k₂)",
    says="Each entry of the matrix of products belongs to a key and a query, and the larger it is "
    "the better the two are aligned.",
    correction="The product is $\\|q\\| \\|k\\| \\cos$: a long key can win over a better aligned "
    "one. For keys of one length the order is that of the angles.",
    why="For normed tokens and random weights, two keys of one query were compared over and over. "
    "In {agreement:.3f} of the cases the larger product belonged to the smaller angle, in the "
    "others it did not. A key of length 3 at 60 degrees has the product 1.5, one of length 1 along "
    "the query has 1. With all keys at one length the share is {agreement_normed:.0f}.",
    checks=(
        Check(
            "agreement",
            "claim",
            "at least",
            1.0,
            label="share of pairs that product and angle order alike",
            because="The sentence is about every pair: one that is ordered otherwise refutes it.",
        ),
        Check(
            "agreement_normed",
            "correction",
            "at least",
            1.0,
            label="the same share for keys of one length",
            because="With one length the product is the cosine times a constant: every pair agrees.",
        ),
    ),
    seconds=0.01,
)
def measure(seed: int) -> Measured:
    """Compare all pairs of keys of every query, before and after a norm on the keys."""
    import torch

    from leadline.parts.norms.layernorm import LayerNorm
    from leadline.parts.norms.rmsnorm import RMSNorm

    generator = torch.Generator().manual_seed(4400 + seed)
    with torch.no_grad():
        x = torch.randn(64, 64, generator=generator, dtype=torch.float64)
        tokens = LayerNorm(64).double()(x)
        weights = torch.randn(2, 64, 16, generator=generator, dtype=torch.float64) / 8
        query, key = tokens @ weights[0], tokens @ weights[1]
        normed = RMSNorm(16, eps=0.0).double()(key)
    return Measured(
        {
            "agreement": _agreement(query.numpy(), key.numpy()),
            "agreement_normed": _agreement(query.numpy(), normed.numpy()),
        }
    )
