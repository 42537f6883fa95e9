"""Attention is said to collapse much faster than a product of ordinary stochastic matrices.

Such a product converges linearly, in the words of numerical analysis: the distance falls by about
the same factor every time. Read as two statements: the residual of P_L ... P_1 X with unrelated
random P falls on a straight line in the logarithm, and that of attention without a mask runs away
below it. Carried to a causal stack the second fails: it too falls on a straight line.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

DEPTH = 12
MANY = 10.0


@claim(
    "collapse-outruns-stochastic-products",
    group="collapse",
    notes=("deep-dive",),
    title="Attention collapses much faster than a product of random stochastic matrices",
    formula=r"\log \| \mathrm{res}(P_L \cdots P_1 X) \| \sim -c L, \quad \log \| \mathrm{res}(X^L) \| \sim -c \, 3^L",
    plain="log ‖res(P_L⋯P_1 X)‖ ~ −cL, log ‖res(X^L)‖ ~ −c 3^L",
    says="A product of ordinary stochastic matrices converges linearly; the residual of pure "
    "attention falls to zero far faster than that.",
    correction="It is so without a mask. There the patterns themselves become equal rows as the tokens "
    "do; a causal stack cannot do that, and its residual falls on a straight line as well.",
    why="Twelve unrelated random patterns bring the logarithm of the residual down on a straight line "
    "(correlation with depth {straight:.3f}). Attention without a mask is then {faster:.0f} times as far "
    "down in the logarithm, since its patterns flatten together with its tokens. With a causal mask it "
    "is only {causal:.2f} times as far.",
    checks=(
        Check(
            "straight",
            "claim",
            "at most",
            -0.98,
            label="correlation of log residual and depth, random product",
            because="A straight line has -1; independent factors leave a scatter of a few per cent.",
        ),
        Check(
            "faster",
            "claim",
            "at least",
            MANY,
            label="fall of log residual over that of the product, no mask",
            because="Much faster is read as ten times as far in the logarithm.",
            log=True,
        ),
        Check(
            "causal",
            "reach",
            "at least",
            MANY,
            label="the same under a causal mask",
            because="Much faster is read as ten times as far in the logarithm.",
            log=True,
        ),
        Check(
            "causal_straight",
            "correction",
            "at most",
            -0.98,
            label="correlation of log residual and depth, causal",
            because="A straight line has -1; drawn layers leave a scatter of a few per cent.",
        ),
    ),
    seconds=0.04,
)
def measure(seed: int) -> Measured:
    """Multiply unrelated patterns, and follow attention without and with a mask."""
    import numpy as np

    from leadline.claims.collapse._stacks import (
        drawn_layers,
        drawn_tokens,
        norm_keeping,
        residual,
    )
    from leadline.instruments.collapse.measure import collapse_weights

    x = drawn_tokens(seed)
    rng = np.random.default_rng([seed, 10])
    rest, product = residual(x), [float(np.log10(np.linalg.norm(residual(x))))]
    for _ in range(DEPTH):
        weights = np.exp(rng.normal(size=(len(x), len(x))))
        # Rows sum to one, so that res(P X) = res(P res X): nothing cancels.
        rest = residual(weights / weights.sum(1, keepdims=True) @ rest)
        product.append(float(np.log10(np.linalg.norm(rest))))
    layers = norm_keeping(drawn_layers(seed, depth=DEPTH), sharpness=1.0)
    open_, masked = (
        [float(v) for v in collapse_weights(x, layers, causal=causal).log10_residual]
        for causal in (False, True)
    )
    depths = np.arange(DEPTH + 1.0)

    def fall(logs: list[float]) -> float:
        return logs[-1] - logs[0]

    sites = tuple(map(float, depths))
    return Measured(
        {
            "straight": float(np.corrcoef(depths, product)[0, 1]),
            "faster": fall(open_) / fall(product),
            "causal": fall(masked) / fall(product),
            "causal_straight": float(np.corrcoef(depths, masked)[0, 1]),
        },
        Picture(
            "layer",
            "log₁₀ of the residual",
            {
                "random product": (sites, tuple(product)),
                "causal attention": (sites, tuple(masked)),
                "attention, no mask": (sites[:6], tuple(open_[:6])),
            },
        ),
    )
