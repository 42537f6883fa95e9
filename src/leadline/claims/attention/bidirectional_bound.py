"""Our bound without a mask: |A|_2^2 <= n max_k (k e^{2D} + n - k) / (k e^D + n - k)^2 <= cosh^2(D/2).

D is the span of a row's logits, from the weights (Delta). Attacked on heads with shifts, biases,
rotary positions, norms on queries and keys, caps and sinks. It is attained by a matrix with equal
rows: k logits at D and the others at 0. It is never above the note's bound where that one holds.
Proof in `theory.attention.bidirectional`.
"""

from __future__ import annotations

import math

import numpy as np

from leadline.claims.attention._drawn import largest, softmax
from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

TOKENS = 8
SPANS = tuple(float(span) for span in np.linspace(0, 8, 33))
KINDS = ("open", "open-rotary", "open-qk-norm", "open-sink")
ATTACK = "A bound: at most 1, to float64 rounding of norms and of the sizes that are set."


@claim(
    "bidirectional-bound",
    group="attention",
    notes=(),
    title="Without a mask the norm is at most cosh(Δ/2), whatever the number of tokens",
    formula=r"\|A\|_2^2 \leq n \max_k \frac{k e^{2\Delta} + n - k}{(k e^{\Delta} + n - k)^2} \leq "
    r"\cosh^2 \frac{\Delta}{2}",
    plain="‖A‖₂² ≤ n max_k (k e^(2Δ) + n − k) / (k e^Δ + n − k)² ≤ cosh²(Δ/2)",
    says="This one is not from a note: it is the bound that takes the place of the pre-norm bound for "
    "attention without a mask. Δ is the largest difference of two logits of a row.",
    correction="",
    why="Heads of four kinds were pushed uphill: they reached {ratio_bidirectional:.4f} of the bound. "
    "A matrix with equal rows attains it ({ratio_attained:.6f}), so it cannot be improved from Δ "
    "alone. For 8 tokens and Δ = 3 it is {bound_at_three:.3f} where the note's bound is "
    "{note_at_three:.3f}; its second form does not grow with n.",
    checks=(
        Check(
            "ratio_bidirectional", "claim", "at most", 1 + 1e-9,
            label="norm over the bound, four kinds of heads", because=ATTACK,
        ),
        Check(
            "ratio_cosh", "claim", "at most", 1 + 1e-9,
            label="norm over the form free of n", because=ATTACK,
        ),
        Check(
            "ratio_attained", "claim", "near", 1.0, within=1e-9,
            label="norm over the bound, matrix with equal rows",
            because="The bound is attained there, to float64 rounding.",
        ),
        Check(
            "ratio_to_note", "claim", "at most", 1 + 1e-12,
            label="the bound over the note's, largest",
            because="Sums of squares of a row are at most its largest weight, so it is never above.",
        ),
    ),
    source="Pólya and Szegő 1925; Kantorovich 1948",
    seconds=0.6,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Attack, attain, and compare with the note's bound."""
    from leadline.claims.attention._ratios import worst_ratios
    from leadline.theory import BOUNDS, AttentionFacts

    attacked = worst_ratios(("bidirectional", "cosh"), KINDS, seed=seed)
    facts = [AttentionFacts(queries=TOKENS, keys=TOKENS, logit_span=span) for span in SPANS]
    measured = [_value(BOUNDS.get("bidirectional-measured")(), one) for one in facts]
    free = [_value(BOUNDS.get("cosh-measured")(), one) for one in facts]
    note = [math.sqrt(TOKENS / (1 + (TOKENS - 1) * math.exp(-span))) for span in SPANS]
    reached = [
        max(
            largest(np.tile(softmax(np.where(np.arange(TOKENS) < k, span, 0.0)), (TOKENS, 1)))
            for k in range(1, TOKENS + 1)
        )
        for span in SPANS
    ]
    worst = max((a / b for a, b in zip(reached, measured, strict=True)), key=lambda r: abs(r - 1))
    return Measured(
        {
            "ratio_bidirectional": attacked["bidirectional"],
            "ratio_cosh": attacked["cosh"],
            "ratio_attained": worst,
            "bound_at_three": measured[SPANS.index(3.0)],
            "note_at_three": note[SPANS.index(3.0)],
            "ratio_to_note": max(a / b for a, b in zip(measured, note, strict=True)),
        },
        Picture(
            "span of the logits of a row",
            "spectral norm",
            {
                "largest norm of equal rows": (SPANS, tuple(reached)),
                "bound": (SPANS, tuple(measured)),
                "form free of n": (SPANS, tuple(free)),
                "the note's bound": (SPANS, tuple(note)),
            },
            faint=("bound", "form free of n", "the note's bound"),
        ),
    )


def _value(bound: object, facts: object) -> float:
    value = bound.value(facts)  # pyright: ignore[reportAttributeAccessIssue]
    assert value is not None
    return value
