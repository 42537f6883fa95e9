"""The logits are divided by the root of h.

The note writes Q K' / sqrt(h), where h numbers the head, and says in words that products are divided
by the root of the dimension of queries and keys. The formula is read as written, h being the head's
number or the number of heads, whichever comes nearer; the words are the correction. What the
attention really divides by is read from the logits themselves by the probe `attention`: GPT-2 of
Hugging Face, small and random, and a model of Leadline's own. Vaswani et al. 2017, arXiv 1706.03762.
"""

from __future__ import annotations

import math

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

WIDTH, HEADS = 64, 4


@claim(
    "scaled-by-head-width",
    group="attention",
    notes=("deep-dive",),
    title="Attention logits are divided by the root of h, the head",
    formula=r"S_h = \frac{Q_h K_h^\top}{\sqrt{h}}",
    plain="S_h = Q_h K_h' / √h",
    says="The formula divides the products of queries and keys by the root of h, the letter that "
    "numbers the heads; the words beside it speak of the dimension of queries and keys.",
    correction="The products are divided by $\\sqrt{d_h}$, the root of the width of a head.",
    why="The scaling was read from the logits of two models with 4 heads of width 16. Times "
    "$\\sqrt{d_h}$ it gives 1. Times the root of the head's number or of the number of heads it "
    "misses 1 by {error_as_written} at the least. The formula has a letter too few; the words of "
    "the note are right.",
    checks=(
        Check(
            "error_as_written",
            "claim",
            "at most",
            1e-6,
            label="scaling times √h, distance from 1",
            because="An identity: the scaling is read from float32 logits by least squares, right "
            "to about 1e-7.",
        ),
        Check(
            "error_by_head_width",
            "correction",
            "at most",
            1e-6,
            label="scaling times √d_h, distance from 1",
            because="An identity, to the rounding of float32 logits.",
            log=True,
        ),
    ),
    source="Vaswani et al. 2017, arXiv 1706.03762, section 3.2.1",
    seconds=0.09,
)
def measure(seed: int) -> Measured:
    """Read the scaling of two models and set it beside both readings."""
    from leadline.claims.attention._models import hf_model
    from leadline.instruments.passes.measurement import measure as measured
    from leadline.models.inputs import random_tokens
    from leadline.parts import Transformer

    models = (
        hf_model("gpt2", n_embd=WIDTH, n_head=HEADS, n_layer=2, seed=seed),
        Transformer(
            depth=1, width=WIDTH, heads=HEADS, vocabulary=100, context=16, init="xavier", seed=seed
        ),
    )
    as_written, by_head_width = [], []
    for model in models:
        ids = random_tokens(model, examples=2, length=12, seed=seed)
        record = measured(model, ids, probes="attention", seed=seed)
        scaling = float(record.by_layer("attention.scaling", point="attention").values[0])
        as_written.append(min(abs(scaling * math.sqrt(h) - 1) for h in range(1, HEADS + 1)))
        by_head_width.append(abs(scaling * math.sqrt(WIDTH // HEADS) - 1))
    return Measured(
        {"error_as_written": min(as_written), "error_by_head_width": max(by_head_width)}
    )
