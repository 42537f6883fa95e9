"""|A|_2 <= sqrt(n / (1 + (n-1) e^{-2M})), M = Gamma^2 sigma_Q sigma_K sqrt(d).

The derivation takes out the shift of the norm, divides by sqrt(d) and sums over all n keys: in that
setting, which the note writes down, it is the claim. A reader carries it to GPT-2, of which the note
speaks: causal, with a shift, divided by sqrt(d_h). Each of the three alone breaks it: the reach, and
a claim of its own each. The bound is `pre-norm-as-written` of the catalog, attacked at random and by
gradient ascent.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

ROUNDING = 1 + 1e-9
SIZES = {"gain": 0.5, "shift": 8.0, "query_weight": 0.7, "key_weight": 0.7}
"""M = 0.5 at width 16: with the note's conditions the bound is far from the root of n."""
WIDER = {"gain": 0.5, "query_weight": 2**0.5, "key_weight": 2**0.5}
"""M = 2 at width 16: between equal logits and one key for all."""
ATTACK = "A bound: at most 1, to float64 rounding of norms and of the sizes that are set."


@claim(
    "pre-norm-bound",
    group="attention",
    notes=("deep-dive",),
    title="Pre-norm bounds the spectral norm of attention",
    formula=r"\|A\|_2 \leq \sqrt{\frac{n}{1 + (n - 1) e^{-2 \Gamma^2 \sigma_Q \sigma_K \sqrt{d}}}}",
    plain="‖A‖₂ ≤ √(n / (1 + (n − 1) e^(−2M))), M = Γ²σ_Qσ_K√d",
    says="With a norm before the projections the logits are bounded by M, so every column sum is at "
    "most n / (1 + (n − 1) e^(−2M)), and the spectral norm at most its root.",
    correction="It holds without a mask, without a shift of the norm, without biases and with a "
    "division by √d. For other attention the bound needs the keys of each row and the span Δ of its "
    "logits; the sharper forms are claims of their own.",
    why="Heads were drawn and pushed uphill. In the note's own setting the norm reached "
    "{ratio_as_written:.4f} of the bound and never more. With a causal mask it reached "
    "{ratio_causal:.2f} times the bound, with a shift of the norm {ratio_shifted:.2f} times, and with "
    "the usual division by √d_h {ratio_by_head:.2f} times. GPT-2 has all three.",
    checks=(
        Check(
            "ratio_as_written", "claim", "at most", ROUNDING,
            label="norm over the bound, the note's setting", because=ATTACK,
        ),
        Check(
            "ratio_causal", "reach", "at most", ROUNDING,
            label="norm over the bound, causal mask", because=ATTACK,
        ),
        Check(
            "ratio_shifted", "reach", "at most", ROUNDING,
            label="norm over the bound, norm with a shift", because=ATTACK,
        ),
        Check(
            "ratio_by_head", "reach", "at most", ROUNDING,
            label="norm over the bound, divided by √d_h", because=ATTACK,
        ),
        Check(
            "ratio_any_mask", "correction", "at most", ROUNDING,
            label="norm over the bound by rows and Δ, all four settings", because=ATTACK,
        ),
    ),
    seconds=1.5,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Attack the note's bound in its own setting and in three others."""
    from leadline.claims.attention._ratios import climbed_ratio, worst_ratio

    def outside(kind: str) -> float:
        return climbed_ratio("pre-norm-as-written", kind, seed=seed, sizes=SIZES)

    return Measured(
        {
            "ratio_as_written": max(
                worst_ratio(
                    "pre-norm-as-written", ("as-the-note", "as-the-note-rotary"), seed=seed
                ),
                climbed_ratio("pre-norm-as-written", "as-the-note", seed=seed, sizes=WIDER),
            ),
            "ratio_causal": outside("as-the-note-causal"),
            "ratio_shifted": outside("as-the-note-shifted"),
            "ratio_by_head": outside("as-the-note-scaled-by-head"),
            "ratio_any_mask": worst_ratio(
                "any-mask",
                (
                    "as-the-note",
                    "as-the-note-causal",
                    "as-the-note-shifted",
                    "as-the-note-scaled-by-head",
                ),
                seed=seed,
            ),
        }
    )
