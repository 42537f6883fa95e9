"""|q| <= Gamma sigma_Q sqrt(d) and |k| <= Gamma sigma_K sqrt(d) for normed tokens.

The note's own setting has neither a shift of the norm nor biases of queries and keys: the claim.
GPT-2 has both: the reach. Corrected: |q| <= sigma_Q (Gamma sqrt(d) + |beta|) + |b_Q|, the formula of
`theory.attention._logit_span`. Heads are pushed uphill by gradient ascent.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

ROUNDING = 1 + 1e-9


@claim(
    "query-key-norm-bound",
    group="attention",
    notes=("deep-dive",),
    title="Queries and keys of normed tokens have bounded lengths",
    formula=r"\|q_i\|_2 \leq \Gamma \sigma_Q \sqrt{d}, \quad \|k_j\|_2 \leq \Gamma \sigma_K \sqrt{d}",
    plain="‖q_i‖ ≤ Γσ_Q√d, ‖k_j‖ ≤ Γσ_K√d",
    says="A normed token has a length of at most Γ√d, so a query is at most σ_Q times as long and a "
    "key σ_K times, where these are the spectral norms of the matrices.",
    correction="With the shift and the biases that GPT-2 has: $\\|q\\| \\leq \\sigma_Q (\\Gamma "
    "\\sqrt{d} + \\|\\beta\\|) + \\|b_Q\\|$, and the same for keys.",
    why="Heads were pushed towards long queries and keys. Without shift and biases they reached "
    "{query_ratio:.3f} and {key_ratio:.3f} of the bound, with a shift alone {query_ratio_shifted:.1f} "
    "times the bound. The corrected bound was reached to {query_ratio_corrected:.3f}.",
    checks=(
        Check(
            "query_ratio", "claim", "at most", ROUNDING,
            label="length of queries over the bound",
            because="A theorem; sizes are set through float64 singular values.",
        ),
        Check(
            "key_ratio", "claim", "at most", ROUNDING,
            label="length of keys over the bound",
            because="A theorem; sizes are set through float64 singular values.",
        ),
        Check(
            "query_ratio_shifted", "reach", "at most", ROUNDING,
            label="length of queries over the bound, with a shift",
            because="The same bound, carried to attention as GPT-2 has it.",
        ),
        Check(
            "query_ratio_corrected", "correction", "at most", ROUNDING,
            label="the same over the corrected bound",
            because="The triangle inequality, to float64 rounding.",
        ),
    ),
    seconds=1.1,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Push heads without, with a shift, and with shift and biases."""
    from leadline.claims.attention._attacked_logits import reached

    plain, shifted = (
        reached(kind, seed=4810 + seed) for kind in ("as-the-note", "as-the-note-shifted")
    )
    open_ = reached("open", seed=4811 + seed)
    return Measured(
        {
            "query_ratio": plain.query,
            "key_ratio": plain.key,
            "query_ratio_shifted": shifted.query,
            "query_ratio_corrected": max(one.query_corrected for one in (plain, shifted, open_)),
        }
    )
