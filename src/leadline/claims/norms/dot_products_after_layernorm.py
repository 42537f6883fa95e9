"""The scale of dot products of tokens behind LayerNorm.

The note says that <q_i, k_j> always stays of order one once the tokens lie on one shell. Order one
is a statement about growth: the exponent over the width is 0. Three products are drawn, behind
LayerNorm: of a token with itself (d exactly), of two tokens (sqrt(d) for independent features), and
of queries and keys made by weights of variance 1/d (sqrt(d_h) for heads of width d_h, here d/4).
The correction is the scaled score, <q, k> / sqrt(d_h), with such weights.
"""

from __future__ import annotations

import math

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

WIDTHS, TOKENS, HEADS = (64, 128, 256, 512, 1024), 48, 4


@claim(
    "dot-products-after-layernorm",
    group="norms",
    notes=("deep-dive",),
    title="After LayerNorm the dot products of queries and keys are always of order one",
    formula=r"\langle q_i, k_j \rangle = \mathcal{O}(1)",
    plain="⟨q_i, k_j⟩ = O(1)",
    says="Because LayerNorm puts all tokens on one shell, the dot products of queries and keys "
    "always stay of order one, and softmax works in a stable range.",
    correction="Behind LayerNorm a token has the dot product $d$ with itself and about "
    "$\\sqrt{d}$ with another one. Scores are of order one only after the division by "
    "$\\sqrt{d_h}$ and with weights of variance about $1/d$; training may make them larger.",
    why="LayerNorm fixes lengths at $\\sqrt{d}$, so nothing of order one is left to fix. Over "
    "widths of 64 to 1024 the product of queries and keys grows like the width to the power "
    "{query_key:.2f}, that of a token with itself to the power {own:.2f}. Only the score divided "
    "by the root of the head width stays where it is (power {score:.2f}).",
    checks=(
        Check(
            "query_key", "claim", "near", 0.0, within=0.15,
            label="exponent over width of the size of ⟨q, k⟩",
            because="Order one means the exponent 0; fits over five widths scatter by 0.03.",
            over="mean",
        ),
        Check(
            "own", "claim", "near", 0.0, within=0.15,
            label="exponent over width of ⟨z, z⟩ behind LayerNorm",
            because="Order one means the exponent 0, for every pair of tokens.",
        ),
        Check(
            "other", "correction", "near", 0.5, within=0.15,
            label="exponent over width of ⟨z, z′⟩ behind LayerNorm",
            because="The root of the width for independent features; fits over five widths scatter "
            "by 0.03.",
            over="mean",
        ),
        Check(
            "score", "correction", "near", 0.0, within=0.15,
            label="exponent over width of ⟨q, k⟩/√d_h",
            because="Exponent 0; fits over five widths scatter by 0.03.",
            over="mean",
        ),
        Check(
            "score_size", "correction", "near", 1.0, within=0.5,
            label="typical size of the score at width 1024",
            because="Weights of variance 1/d make a score of variance 1 in the mean.",
        ),
    ),
    source="Vaswani et al. 2017, arXiv 1706.03762 (why scores are divided by the root)",
    seconds=0.02,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Products behind LayerNorm over the width."""
    from leadline.claims.norms._layernorm import applied
    from leadline.experiments.exponent import fit_exponent

    rng = np.random.default_rng([seed, 38])
    sizes: dict[str, list[float]] = {"own": [], "other": [], "query_key": [], "score": []}
    for width in WIDTHS:
        head = width // HEADS
        z = applied(3.0 * rng.standard_normal((TOKENS, width)))
        query, key = rng.standard_normal((2, width, head)) / math.sqrt(width)
        apart = ~np.eye(TOKENS, dtype=bool)
        products = ((z @ query) @ (z @ key).T)[apart]
        sizes["own"].append(float((z * z).sum(axis=1).mean()))
        sizes["other"].append(_size((z @ z.T)[apart]))
        sizes["query_key"].append(_size(products))
        sizes["score"].append(_size(products / math.sqrt(head)))
    slopes = {
        name: fit_exponent(WIDTHS, {0: values}).slope for name, values in sizes.items()
    }  # fmt: skip
    widths = tuple(float(width) for width in WIDTHS)
    labels = {"own": "⟨z, z⟩", "other": "⟨z, z′⟩", "query_key": "⟨q, k⟩", "score": "⟨q, k⟩/√d_h"}
    return Measured(
        {**slopes, "score_size": sizes["score"][-1]},
        Picture(
            "width",
            "typical size",
            {labels[name]: (widths, tuple(values)) for name, values in sizes.items()},
            x_log=True,
            y_log=True,
        ),
    )


def _size(values: np.ndarray) -> float:
    return float(np.sqrt((values**2).mean()))
