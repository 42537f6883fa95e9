"""The pre-norm bound for norms with a shift beta, as GPT-2 has them.

The note takes beta out of the derivation and states the result for LayerNorm, whose formula it gives
with beta. Read so, beta is part of the claim. Bidirectional heads divided by sqrt(d), nothing else
changed. Corrected by the bound `bidirectional` of the catalog, whose Delta knows |beta|: on the side
of the keys it cancels, on the side of the queries it does not. That beta is not zero in practice is
read from the trained pre-norm model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.attention._trained import TRAINED
from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

SIZES = {"gain": 0.5, "shift": 8.0, "query_weight": 0.7, "key_weight": 0.7}
"""M = 0.5 at width 16, and a shift four times as long as what is normed."""


@claim(
    "pre-norm-bound-with-beta",
    group="attention",
    notes=("deep-dive",),
    title="The pre-norm bound holds although LayerNorm adds a shift β",
    formula=r"z = \gamma \odot \frac{h - \mu \mathbf{1}}{\sigma} + \beta \; \Rightarrow \; "
    r"\|A\|_2 \leq \sqrt{\frac{n}{1 + (n - 1) e^{-2M}}}",
    plain="z = γ(h − μ)/σ + β ⇒ ‖A‖₂ ≤ √(n / (1 + (n − 1) e^(−2M)))",
    says="The shift is left out on the way, and the bound is then stated for LayerNorm, which has one.",
    correction="With a shift use $\\Delta = 2 \\Gamma \\sigma_Q \\sigma_K \\sqrt{d} (\\Gamma \\sqrt{d} + "
    "\\|\\beta\\|) / \\sqrt{d}$ in place of 2M: the shift lengthens the queries; between keys it "
    "cancels.",
    why="Heads with a shift were pushed uphill: the norm reached {ratio_shifted:.2f} times the note's "
    "bound, and {ratio_corrected:.4f} of the bound that knows the shift. Trained norms do have one: "
    "its length is {trained_shift:.2f} in a small pre-norm model, in the mean of the layers.",
    checks=(
        Check(
            "ratio_shifted", "claim", "at most", 1 + 1e-9,
            label="norm over the note's bound, with a shift",
            because="A bound: at most 1, to float64 rounding.",
        ),
        Check(
            "ratio_corrected", "correction", "at most", 1 + 1e-9,
            label="norm over the corrected bound, with a shift",
            because="A bound: at most 1, to float64 rounding.",
        ),
        Check(
            "trained_shift", "correction", "at least", 1e-3,
            label="length of the shift in a trained model",
            because="It starts at exactly 0; a thousandth is far above float32 rounding, 1e-7.",
        ),
    ),
    seconds=0.4,
    needs=(TRAINED,),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Attack both bounds with heads that have a shift."""
    from leadline.claims.attention._ratios import climbed_ratio, worst_ratio

    kind = "as-the-note-shifted"
    shifts = trials[TRAINED.name]["pre"]["norm_shift"]
    return Measured(
        {
            "ratio_shifted": climbed_ratio("pre-norm-as-written", kind, seed=seed, sizes=SIZES),
            "ratio_corrected": max(
                worst_ratio("bidirectional", (kind,), seed=seed),
                climbed_ratio("bidirectional", kind, seed=seed, sizes=SIZES),
            ),
            "trained_shift": sum(shifts) / len(shifts),
        }
    )
