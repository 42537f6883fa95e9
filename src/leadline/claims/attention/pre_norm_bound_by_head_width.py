"""The pre-norm bound with the division that attention really has, by sqrt(d_h).

The note's logits are divided by sqrt(d), d the width of the stream. Its own words in another place,
and every model, divide by the root of the width of a head. Read with that division: the claim fails,
because logits are sqrt(d / d_h) times as large as M allows. For GPT-2 the factor is 3.46. Corrected:
2M sqrt(d / d_h) as Delta in the bound `bidirectional` of the catalog.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

SIZES = {"gain": 0.5, "query_weight": 0.7, "key_weight": 0.7}
"""M = 0.5 at width 16; a head of width 1 has logits four times as large."""


@claim(
    "pre-norm-bound-by-head-width",
    group="attention",
    notes=("deep-dive",),
    title="The pre-norm bound holds with the scaling that attention uses",
    formula=r"\ell_{ij} = \frac{\langle q_i, k_j \rangle}{\sqrt{d_h}} \; \Rightarrow \; "
    r"\|A\|_2 \leq \sqrt{\frac{n}{1 + (n - 1) e^{-2 \Gamma^2 \sigma_Q \sigma_K \sqrt{d}}}}",
    plain="ℓ = ⟨q, k⟩ / √d_h ⇒ ‖A‖₂ ≤ √(n / (1 + (n − 1) e^(−2M)))",
    says="The bound is stated for scaled dot-product attention; on the way the products are divided by "
    "the root of the width of the stream.",
    correction="Attention divides by √d_h, so M must be $\\Gamma^2 \\sigma_Q \\sigma_K d / \\sqrt{d_h}$: "
    "$\\sqrt{d / d_h}$ times the note's.",
    why="Heads divided by √d_h were pushed uphill: the norm reached {ratio_by_head:.2f} times the "
    "note's bound, and {ratio_corrected:.4f} of the bound with the right division. In GPT-2 the "
    "factor between the two M is {gpt2_factor:.2f}.",
    checks=(
        Check(
            "ratio_by_head", "claim", "at most", 1 + 1e-9,
            label="norm over the note's bound, divided by √d_h",
            because="A bound: at most 1, to float64 rounding.",
        ),
        Check(
            "ratio_corrected", "correction", "at most", 1 + 1e-9,
            label="norm over the corrected bound",
            because="A bound: at most 1, to float64 rounding.",
        ),
    ),
    seconds=0.4,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Attack both bounds with heads divided by the root of their width."""
    from leadline.claims.attention._ratios import climbed_ratio, worst_ratio
    from leadline.parts import Recipe

    kind = "as-the-note-scaled-by-head"
    gpt2 = Recipe.named("gpt2")
    assert gpt2.heads is not None
    return Measured(
        {
            "ratio_by_head": climbed_ratio("pre-norm-as-written", kind, seed=seed, sizes=SIZES),
            "ratio_corrected": max(
                worst_ratio("bidirectional", (kind,), seed=seed),
                climbed_ratio("bidirectional", kind, seed=seed, sizes=SIZES),
            ),
            "gpt2_factor": float(gpt2.heads) ** 0.5,
        }
    )
