"""Our bound for any mask: |A|_2^2 <= sum_i max_k (k e^{2D} + m_i - k) / (k e^D + m_i - k)^2.

Query i sees m_i keys. Attacked with windows, blocks of documents and random masks (`any-mask` and
`any-mask-measured` of the catalog). Proof: the Frobenius norm, row by row.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check


@claim(
    "any-mask-bound",
    group="attention",
    notes=(),
    title="For any mask the norm is bounded by the number of keys that each query sees",
    formula=r"\|A\|_2^2 \leq \sum_i \max_{k \leq m_i} \frac{k e^{2\Delta} + m_i - k}"
    r"{(k e^{\Delta} + m_i - k)^2}",
    plain="‖A‖₂² ≤ Σ_i max_k (k e^(2Δ) + m_i − k) / (k e^Δ + m_i − k)²",
    says="This one is not from a note: it bounds attention under windows, packed documents, padding "
    "and every other mask by the keys $m_i$ that query i may see and by the span Δ of its logits.",
    correction="",
    why="Heads with windows, blocks and random masks were drawn and pushed uphill. They reached "
    "{ratio_weights:.4f} of the bound from the weights and {ratio_measured:.4f} of the bound from the "
    "measured logits, and never more. The sum of squares of a row is largest when some of its logits "
    "stand at the top and the others at the bottom of the span.",
    checks=(
        Check(
            "ratio_weights",
            "claim",
            "at most",
            1 + 1e-9,
            label="norm over the bound from the weights",
            because="A bound: at most 1, to float64 rounding.",
        ),
        Check(
            "ratio_measured",
            "claim",
            "at most",
            1 + 1e-9,
            label="norm over the bound from the measured logits",
            because="A bound: at most 1, to float64 rounding.",
        ),
    ),
    seconds=0.5,
)
def measure(seed: int) -> Measured:
    """Attack both forms under four kinds of masks."""
    from leadline.claims.attention._ratios import worst_ratios

    names = ("any-mask", "any-mask-measured")
    worst = worst_ratios(names, ("window", "blocks", "random", "logits-random"), seed=seed)
    return Measured({"ratio_weights": worst[names[0]], "ratio_measured": worst[names[1]]})
