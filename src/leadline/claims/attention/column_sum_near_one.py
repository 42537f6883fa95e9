"""Pre-norm presses the largest column sum very near to 1.

"Very near 1" is read as at most 1.1. Two things can be meant, and both are checked: the bound
n alpha on the column sums that the note derives, at GPT-2's own start and context; and the column
sums themselves, in a trained pre-norm model. With equal logits a causal column sums to the harmonic
number 1 + 1/2 + ... + 1/n: even the most even causal attention is far from 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from leadline.claims.attention._started import STARTED, TOKENS
from leadline.claims.attention._trained import TRAINED
from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

CONTEXT = 1024


@claim(
    "column-sum-near-one",
    group="attention",
    notes=("deep-dive",),
    title="Pre-norm presses the largest column sum very near to 1",
    formula=r"c_{\max} \approx 1",
    plain="c_max ≈ 1",
    says="Because the logits of pre-norm attention have a bounded span, the largest column sum is "
    "pressed into a range very near to 1.",
    correction="At GPT-2's start the bound on the column sums is n itself, so it says nothing. Under a "
    "causal mask even equal logits give the largest column sum $1 + \\frac{1}{2} + \\dots + "
    "\\frac{1}{n}$.",
    why="For GPT-2's start and 1024 tokens the note's M is {gpt2_reach:.1f} and its bound on the column "
    "sums is {gpt2_column_bound:.1f}. In a trained pre-norm model on 64 tokens the largest column sum "
    "of a head is {trained_column_sum:.2f} in the mean. At the start of training, with almost equal "
    "logits, it is {start_column_sum:.2f} for 32 tokens: the harmonic number, because early keys are "
    "seen by more queries.",
    checks=(
        Check(
            "gpt2_column_bound", "claim", "at most", 1.1,
            label="bound on the column sums, GPT-2's start, 1024 tokens",
            because="Very near 1 is read as at most 1.1.", log=True,
        ),
        Check(
            "trained_column_sum", "claim", "at most", 1.1,
            label="largest column sum in a trained pre-norm model",
            because="Very near 1 is read as at most 1.1.", over="mean",
        ),
        Check(
            "gpt2_share_of_root", "correction", "at least", 0.99,
            label="bound on the norm over √n, GPT-2's start",
            because="A bound within a percent of √n says no more than √n.",
        ),
        Check(
            "harmonic_error", "correction", "at most", 0.01,
            label="column sum at the start against the harmonic number, relative",
            because="Logits of GPT-2's start span about 0.15, which moves a column sum by less than a "
            "percent.",
        ),
    ),
    seconds=0.08,
    needs=(TRAINED, STARTED),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """The bound at GPT-2's start, and measured column sums."""
    from leadline.claims.attention._gpt2_start import gpt2_start
    from leadline.theory import BOUNDS

    facts = gpt2_start(seed, tokens=CONTEXT)
    bound = BOUNDS.get("pre-norm-as-written")().value(facts)
    assert bound is not None
    assert facts.gain is not None and facts.width is not None
    assert facts.query_weight is not None and facts.key_weight is not None
    trained = trials[TRAINED.name]["pre"]["column_sum"]
    started = trials[STARTED.name]["pre-gpt2"]["column_sum"]
    harmonic = float(sum(1 / i for i in range(1, TOKENS + 1)))
    start = float(np.mean(started))
    layers = tuple(float(layer) for layer in range(1, len(trained) + 1))
    return Measured(
        {
            "gpt2_reach": facts.gain**2 * facts.query_weight * facts.key_weight * facts.width**0.5,
            "gpt2_column_bound": bound**2,
            "gpt2_share_of_root": bound / CONTEXT**0.5,
            "trained_column_sum": float(np.mean(trained)),
            "start_column_sum": start,
            "harmonic_error": abs(start / harmonic - 1),
        },
        Picture(
            "layer",
            "largest column sum",
            {
                "trained, pre-norm": (layers, tuple(trained)),
                "what the note expects": (layers, (1.0,) * len(layers)),
            },
            faint=("what the note expects",),
        ),
    )
