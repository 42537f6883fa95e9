"""Pure attention is said to bring all tokens to one at a double exponential rate.

Read in the theorem's own setting, the part "claim": attention alone, no mask, weights that are
neither tiny nor sharp. There log |res X| triples from layer to layer, because
res X' = (s/n) sum_h R W_QK,h R'R W_h to leading order. The sentence names no conditions, so it is
carried to a causal mask and to patterns that are near a permutation: there it fails.

Source: Dong, Cordonnier, Loukas 2021, arXiv 2103.03404.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

DEPTH, HEADS = 12, 2
SWAPS = 100


@claim(
    "pure-attention-collapses-doubly",
    group="collapse",
    notes=("deep-dive",),
    title="Attention alone makes all tokens equal at a double exponential rate",
    formula=r"\log \| \mathrm{res}(X^{l+1}) \| \approx 3 \log \| \mathrm{res}(X^l) \|",
    plain="log ‖res(X^{l+1})‖ ≈ 3 log ‖res(X^l)‖",
    says="Without skip connections and MLPs, the output of a stack of self-attention layers "
    "degenerates to rank one double exponentially with depth: all tokens become alike.",
    correction="Without a mask, and once the tokens are near each other, every layer cubes the "
    "residual: $R' = \\frac{s}{n} \\sum_h R W_{QK,h} R^T R W_h$. Under a causal mask the fall is only "
    "exponential, and patterns near a permutation can keep tokens apart.",
    why="Eight random tokens were followed through {depth:.0f} layers of random attention without "
    "cancellation. In the last layer the logarithm of the residual grew {ratio:.4f} times, and its size "
    "is 10 to the power {last:.0f}. With a causal mask the same weights give {causal:.2f} instead of 3. "
    "Tokens that each attend to one neighbour keep their residual: its logarithm changes by "
    "{swapped} in 100 layers.",
    checks=(
        Check(
            "ratio",
            "claim",
            "near",
            3.0,
            within=0.01,
            label="ratio of log residuals in the last layer",
            because="The cubic law gives 3 plus log c over log r, which is below 0.01 here.",
        ),
        Check(
            "relative",
            "claim",
            "at most",
            -3.0,
            label="log₁₀ of the relative residual at the end",
            because="Equal tokens are read as a residual a thousand times below the stream.",
        ),
        Check(
            "causal",
            "reach",
            "near",
            3.0,
            within=0.5,
            label="ratio of log residuals under a causal mask",
            because="Double exponential means that the logarithm is multiplied, by 3 if cubic.",
        ),
        Check(
            "swapped",
            "reach",
            "at most",
            -3.0,
            label="change of log₁₀ residual over 100 swapping layers",
            because="Collapsed is read as at least a thousandfold smaller.",
        ),
        Check(
            "law",
            "correction",
            "at most",
            1e-6,
            label="log₁₀ of the cubic law against the residual, last layer",
            because="The law is the leading term, and the next is below rounding at this depth; the "
            "logarithm of 80,000 digits has twelve places left.",
            log=True,
        ),
    ),
    seconds=0.6,
    source="Dong, Cordonnier, Loukas 2021, arXiv 2103.03404",
)
def measure(seed: int) -> Measured:
    """Follow the same layers without and with a mask, and a network that swaps tokens."""
    from leadline.claims.collapse._stacks import drawn_layers, drawn_tokens, swapping_layers
    from leadline.instruments.collapse.measure import collapse_weights
    from leadline.theory.rank_collapse import COLLAPSE_BOUNDS

    x, layers = drawn_tokens(seed), drawn_layers(seed, depth=DEPTH)
    open_ = collapse_weights(x, layers, heads=HEADS, facts=True)
    masked = collapse_weights(x, layers, heads=HEADS, causal=True)
    corners, turning = swapping_layers(depth=SWAPS, tokens=6, sharpness=1000.0)
    swapped = collapse_weights(corners, turning)
    assert open_.facts is not None
    law = COLLAPSE_BOUNDS.get("collapse-cubic-law")().log10_values(open_.facts)
    assert law is not None
    sites = tuple(float(site) for site in range(8))
    return Measured(
        {
            "depth": float(DEPTH),
            "ratio": float(open_.log_ratio[-1]),
            "last": float(open_.log10_residual[-1]),
            "relative": float(open_.log10_relative[-1]),
            "causal": float(masked.log_ratio[-1]),
            "swapped": float(swapped.log10_residual[-1] - swapped.log10_residual[0]),
            "law": abs(law[-1] - float(open_.log10_residual[-1])),
        },
        Picture(
            "layer",
            "log₁₀ of the residual",
            {
                "no mask": (sites, tuple(map(float, open_.log10_residual[:8]))),
                "causal": (sites, tuple(map(float, masked.log10_residual[:8]))),
                "each token copies one": (sites, tuple(map(float, swapped.log10_residual[:8]))),
            },
        ),
    )
