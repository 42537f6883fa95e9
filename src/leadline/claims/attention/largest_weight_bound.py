"""A weight is at most 1 / (1 + (n-1) e^-D) where the logits of a row differ by at most D.

The note sums the softmax over all n keys: without a mask it is right, and sharp (one logit at the
top, all others D below). Under a causal mask row i has i keys only; there n must be i. Logits are
drawn within a span, random and at the worst place.
"""

from __future__ import annotations

import math

import numpy as np

from leadline.claims.attention._drawn import softmax
from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

DRAWN = 300


@claim(
    "largest-weight-bound",
    group="attention",
    notes=("deep-dive",),
    title="No attention weight exceeds 1 / (1 + (n − 1) e^(−Δ))",
    formula=r"A_{ij} \leq \frac{1}{1 + (n - 1) e^{-\Delta}}",
    plain="A_ij ≤ 1 / (1 + (n − 1) e^(−Δ))",
    says="If the logits of a row differ by at most Δ, the largest weight of softmax over n keys is at "
    "most 1 / (1 + (n − 1) e^(−Δ)).",
    correction="Under a mask n is the number of keys that the row may see: $1 / (1 + (m_i - 1) "
    "e^{-\\Delta})$, with $m_i = i$ for a causal mask. The first row then has the weight 1.",
    why="Rows with logits within a span were drawn, and the worst row was set by hand. Without a mask "
    "the largest weight reached {ratio_open:.6f} of the bound. Under a causal mask it was "
    "{ratio_causal:.1f} times the bound, because early rows have few keys to share among. Counting the "
    "keys of each row, the ratio is {ratio_counted:.6f}.",
    checks=(
        Check(
            "ratio_open",
            "claim",
            "at most",
            1 + 1e-12,
            label="largest weight over the bound, no mask",
            because="A theorem, attained; exponentials are right to 1e-15.",
        ),
        Check(
            "ratio_causal",
            "reach",
            "at most",
            1 + 1e-12,
            label="largest weight over the bound, causal mask",
            because="The same bound for GPT-2's mask.",
        ),
        Check(
            "ratio_counted",
            "correction",
            "at most",
            1 + 1e-12,
            label="largest weight over the bound by the keys of its row, causal mask",
            because="A theorem, attained; exponentials are right to 1e-15.",
        ),
    ),
    seconds=0.01,
)
def measure(seed: int) -> Measured:
    """Largest weights of drawn rows, with and without the mask."""
    rng = np.random.default_rng([seed, 4830])
    plain, causal, counted = [], [], []
    for number in range(DRAWN):
        n, span = int(rng.integers(2, 20)), float(rng.uniform(0, 8))
        logits = span * rng.random((n, n))
        if number % 3 == 0:
            logits = span * np.eye(n)
        allowed = np.tril(np.ones((n, n), bool))
        bound = 1 / (1 + (n - 1) * math.exp(-span))
        masked = softmax(np.where(allowed, logits, -np.inf)).max(1)
        by_row = 1 / (1 + np.arange(n) * math.exp(-span))
        plain.append(float(softmax(logits).max()) / bound)
        causal.append(float(masked.max()) / bound)
        counted.append(float((masked / by_row).max()))
    return Measured(
        {
            "ratio_open": max(plain),
            "ratio_causal": max(causal),
            "ratio_counted": max(counted),
        }
    )
