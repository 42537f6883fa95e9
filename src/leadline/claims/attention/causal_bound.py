"""Our bound for the causal mask, and how far it reaches.

    |A|_2 <= min{sqrt(sum_i max_k (k e^{2D} + i - k)/(k e^D + i - k)^2), |B|_2},  |B|_2 < 2 e^D

for the full lower triangle (proof in `theory.attention.causal`). Attacked with shifts, biases, rotary
positions, caps, sinks. Reach: other masks that hide the future, such as a window of two keys and the
first one. There 2 e^D is false: at D = 0 and 256 tokens the norm is 5.47.
"""

from __future__ import annotations

import math

import numpy as np

from leadline.claims.attention._drawn import largest
from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

KINDS = ("causal", "causal-rotary", "causal-sink")
TOKENS = 256


@claim(
    "causal-bound",
    group="attention",
    notes=(),
    title="Under a causal mask the norm is below 2 e^Δ, whatever the number of tokens",
    formula=r"\|A\|_2 < 2 e^{\Delta}",
    plain="‖A‖₂ < 2 e^Δ",
    says="This one is not from a note: it is the bound that takes the place of the pre-norm bound for "
    "a causal mask. Δ is the largest difference of two logits of a row.",
    correction="It needs the full lower triangle: query i sees all keys 1 to i. Other masks that hide "
    "the future need the bound by rows, which counts the keys of each row.",
    why="Causal heads were pushed uphill and reached {ratio_causal:.4f} of the sharper form; equal logits "
    "attain it, and the triangle itself stays below 2 e^Δ: {ratio_to_two:.4f} of it at most. A window "
    "of two keys plus the first one also hides the future, and its norm at equal logits is "
    "{window_norm:.2f} for 256 tokens: the first column gathers a third of every row.",
    checks=(
        Check(
            "ratio_causal", "claim", "at most", 1 + 1e-9,
            label="norm over the sharper form, causal heads",
            because="A bound: at most 1, to float64 rounding.",
        ),
        Check(
            "ratio_to_two", "claim", "at most", 1.0,
            label="the sharper form over 2 e^Δ, largest",
            because="Hardy's inequality: the averaging matrix has a norm below 2 at any size.",
        ),
        Check(
            "ratio_window", "reach", "at most", 1.0,
            label="norm over 2 e^Δ, window of two keys and the first",
            because="The same bound for another mask that hides the future.",
        ),
        Check(
            "ratio_any_mask", "correction", "at most", 1 + 1e-9,
            label="that norm over the bound by rows",
            because="A bound: at most 1, to float64 rounding.",
        ),
    ),
    source="Hardy 1920",
    seconds=0.5,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Attack; compare with 2 e^D; look at a window."""
    from leadline.claims.attention._ratios import worst_ratio
    from leadline.theory import BOUNDS, AttentionFacts

    causal, rows = BOUNDS.get("causal-measured")(), BOUNDS.get("any-mask-measured")()
    ratios = []
    for n in (2, 16, 128, 1024):
        for span in (0.0, 0.5, 1.0, 2.0, 4.0):
            facts = AttentionFacts(queries=n, keys=n, mask="causal", logit_span=span)
            value = causal.value(facts)
            assert value is not None
            ratios.append(value / (2 * math.exp(span)))
    i, j = np.indices((TOKENS, TOKENS))
    seen = (j == 0) | ((j <= i) & (j > i - 2))
    window = largest(seen / seen.sum(1, keepdims=True))
    facts = AttentionFacts(
        queries=TOKENS,
        keys=TOKENS,
        mask="other",
        allowed=tuple(int(count) for count in seen.sum(1)),
        logit_span=0.0,
    )
    by_rows = rows.value(facts)
    assert by_rows is not None
    return Measured(
        {
            "ratio_causal": worst_ratio("causal", KINDS, seed=seed),
            "ratio_to_two": max(ratios),
            "ratio_window": window / 2,
            "ratio_any_mask": window / by_rows,
            "window_norm": window,
        }
    )
