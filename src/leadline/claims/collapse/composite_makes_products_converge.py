"""The measure |.|_{1,inf} is said to guarantee that products of stochastic matrices still converge.

Read as: bounding this measure makes a product of row-stochastic matrices tend to equal rows. The
smallest value that a stochastic matrix can have is 1, and a permutation has it; its powers never
converge. Attention can do it: one-hot tokens, W_QK a large multiple of a cyclic shift. What contracts
is the range of every feature, range(PX) <= tau(P) range(X), with Dobrushin's coefficient
tau = 1 - min over pairs of rows of sum_j min(P_ij, P_kj), which is 1 for a permutation.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

DEPTH, TOKENS, SHARPNESS = 100, 6, 1000.0
DRAWS = 100


@claim(
    "composite-makes-products-converge",
    group="collapse",
    notes=("deep-dive",),
    title="A bound on the composite measure makes products of stochastic matrices converge",
    formula=r"\|P_l\|_{1,\infty} \le c \Rightarrow P_L \cdots P_1 \to \mathbf{1} p^T",
    plain="‖P_l‖₁,∞ ≤ c ⇒ P_L⋯P_1 → 1pᵀ",
    says="The measure bounds rows and columns at once, and so guarantees that a product of "
    "row-stochastic matrices still converges.",
    correction="No bound on this measure guarantees it: permutations have the smallest value, 1, and "
    "never converge. The range of every feature shrinks by the factor $1 - \\min_{i,k} \\sum_j "
    "\\min(P_{ij}, P_{kj})$, and products converge where that stays below some "
    "number smaller than 1.",
    why="Six one-hot tokens, each attending to its neighbour alone, went through {depth:.0f} layers. "
    "Every pattern has the measure {size:.3f}, the least a stochastic matrix can have, and the residual "
    "is still {kept:.3f} of what it was. Random patterns contract as Dobrushin's coefficient says: the "
    "worst draw used {share:.3f} of it.",
    checks=(
        Check(
            "kept",
            "claim",
            "at most",
            1e-3,
            label="share of the residual left after 100 layers",
            because="Converged is read as at least a thousandfold smaller.",
            log=True,
        ),
        Check(
            "share",
            "correction",
            "at most",
            1.0 + 1e-12,
            label="contraction over Dobrushin's coefficient, the worst draw",
            because="A theorem for every stochastic matrix; 1e-12 is rounding.",
        ),
    ),
    seconds=0.2,
)
def measure(seed: int) -> Measured:
    """Follow the swapping network, and contract drawn tokens by drawn patterns."""
    import numpy as np

    from leadline.claims.collapse._stacks import composite, swapping_layers
    from leadline.instruments.collapse.measure import collapse_weights

    x, layers = swapping_layers(depth=DEPTH, tokens=TOKENS, sharpness=SHARPNESS)
    found = collapse_weights(x, layers)
    logits = x @ layers[0]["W_Q"] @ (x @ layers[0]["W_K"]).T / np.sqrt(TOKENS)
    weights = np.exp(logits - logits.max(1, keepdims=True))
    pattern = weights / weights.sum(1, keepdims=True)
    rng = np.random.default_rng([seed, 6])
    share = 0.0
    for _ in range(DRAWS):
        p = rng.dirichlet(np.full(TOKENS, 0.3), size=TOKENS)
        y = rng.normal(size=(TOKENS, 3))
        common = np.minimum(p[:, None], p[None]).sum(-1).min()
        ratio = np.ptp(p @ y, axis=0) / np.ptp(y, axis=0)
        share = max(share, float(ratio.max()) / max(1.0 - float(common), 1e-300))
    return Measured(
        {
            "depth": float(DEPTH),
            "size": composite(pattern),
            "kept": 10.0 ** float(found.log10_residual[-1] - found.log10_residual[0]),
            "share": share,
        }
    )
