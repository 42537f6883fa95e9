"""The pre-norm bound for GPT-2's mask.

The note derives the bound to explain GPT-2, whose attention is causal. Read so, the mask is part of
the claim. Two tokens and M = 0 refute it: A = [[1, 0], [1/2, 1/2]] has norm 1.144, the bound is 1.
Uniform causal attention, the most even there is, has a norm that rises with n towards 2 (Hardy's
inequality); the bound `causal` of the catalog gives it exactly at D = 0.
"""

from __future__ import annotations

import math

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

SMALL = {"gain": 0.2, "query_weight": 0.5, "key_weight": 0.5}
"""M = 0.04 at width 16: nearly equal logits, where the note's bound is nearly 1."""
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


@claim(
    "pre-norm-bound-causal",
    group="attention",
    notes=("deep-dive",),
    title="The pre-norm bound holds for the causal attention of GPT-2",
    formula=r"\|\mathrm{softmax}(S + M_{\mathrm{causal}})\|_2 \leq "
    r"\sqrt{\frac{n}{1 + (n - 1) e^{-2M}}}",
    plain="causal: ‖A‖₂ ≤ √(n / (1 + (n − 1) e^(−2M)))",
    says="The bound on the spectral norm is given as the effect of the norms of GPT-2, a causal "
    "model.",
    correction="For a causal mask $\\|A\\|_2$ is at most $\\sqrt{\\sum_i \\max_k \\frac{k e^{2\\Delta} "
    "+ i - k}{(k e^{\\Delta} + i - k)^2}}$ and at most the norm of the triangle with $1 / (1 + (i-1) "
    "e^{-\\Delta})$ in row $i$, which is below $2 e^{\\Delta}$.",
    why="With equal logits the bound is 1, but causal attention of two tokens has the norm "
    "{norm_two_tokens:.4f}, and of 256 tokens {norm_many_tokens:.3f}: the first rows have few keys, so "
    "the first columns gather weight whatever the logits are. Pushed uphill, causal heads reached "
    "{ratio_causal:.2f} times the note's bound, and {ratio_corrected:.4f} of the corrected one.",
    checks=(
        Check(
            "ratio_causal", "claim", "at most", 1 + 1e-9,
            label="norm over the note's bound, causal heads",
            because="A bound: at most 1, to float64 rounding.",
        ),
        Check(
            "ratio_uniform", "claim", "at most", 1 + 1e-9,
            label="norm over the note's bound, two tokens with equal logits",
            because="A bound: at most 1, to float64 rounding.",
        ),
        Check(
            "ratio_corrected", "correction", "at most", 1 + 1e-9,
            label="norm over the corrected bound, causal heads",
            because="A bound: at most 1, to float64 rounding.",
        ),
        Check(
            "uniform_error", "correction", "at most", 1e-9,
            label="corrected bound at equal logits against the norm, relative",
            because="The corrected bound is attained at Δ = 0; it is computed to 1e-11.",
            log=True,
        ),
    ),
    source="Hardy 1920",
    seconds=0.6,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Attack both bounds, and set them beside uniform causal attention."""
    import torch

    from leadline.claims.attention._ratios import climbed_ratio, worst_ratio
    from leadline.numerics.spectra.spectrum import spectral_norm
    from leadline.theory import BOUNDS, AttentionFacts

    def bound(name: str, n: int) -> float:
        facts = AttentionFacts(
            queries=n,
            keys=n,
            mask="causal",
            positions="none",
            scaling=1.0,
            width=16,
            gain=1.0,
            shift=0.0,
            query_weight=0.0,
            key_weight=0.0,
            query_bias=0.0,
            key_bias=0.0,
        )
        value = BOUNDS.get(name)().value(facts)
        assert value is not None
        return value

    norms, written, corrected = [], [], []
    for n in SIZES:
        uniform = np.tril(np.ones((n, n))) / np.arange(1, n + 1)[:, None]
        norms.append(float(spectral_norm(torch.from_numpy(uniform)).value))
        written.append(bound("pre-norm-as-written", n))
        corrected.append(bound("causal", n))
    sizes = tuple(float(n) for n in SIZES)
    two = SIZES.index(2)
    return Measured(
        {
            "norm_two_tokens": norms[two],
            "norm_many_tokens": norms[-1],
            "ratio_uniform": norms[two] / written[two],
            "ratio_causal": climbed_ratio(
                "pre-norm-as-written", "as-the-note-causal", seed=seed, sizes=SMALL
            ),
            "ratio_corrected": worst_ratio(
                "causal", ("as-the-note-causal", "causal", "causal-rotary"), seed=seed
            ),
            "uniform_error": max(
                abs(b / a - 1) for a, b in zip(norms, corrected, strict=True) if not math.isinf(b)
            ),
        },
        Picture(
            "tokens",
            "spectral norm",
            {
                "causal attention, equal logits": (sizes, tuple(norms)),
                "corrected bound": (sizes, tuple(corrected)),
                "the note's bound": (sizes, tuple(written)),
            },
            x_log=True,
            faint=("corrected bound", "the note's bound"),
        ),
    )
