"""|l| <= M = Gamma^2 sigma_Q sigma_K sqrt(d), and logits of a row differ by at most 2M.

The note scales by 1/sqrt(d), d the width of the stream, and has no shift and no biases: that is its
own setting, the claim. Attention scales by 1/sqrt(d_h), which makes logits sqrt(d / d_h) times as
large (3.46 times in GPT-2), and GPT-2 has shift and biases: the reach. Corrected: the range of a row
is at most Delta of `theory.attention._logit_span`, where the shift and the biases of keys cancel.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

ROUNDING = 1 + 1e-9
WIDTH, HEAD = 16, 4


@claim(
    "logit-bound",
    group="attention",
    notes=("deep-dive",),
    title="With a norm in front, attention logits are bounded by a constant M",
    formula=r"|\ell_{ij}| \leq \Gamma^2 \sigma_Q \sigma_K \sqrt{d} = M, \quad "
    r"\max_j \ell_{ij} - \min_j \ell_{ij} \leq 2 M",
    plain="|ℓ_ij| ≤ M = Γ²σ_Qσ_K√d, range of a row ≤ 2M",
    says="Products of queries and keys, divided by √d, are at most M in size, so the logits of one "
    "row differ by at most 2M.",
    correction="Attention divides by √d_h and has a shift and biases. Then the logits of a row "
    "differ by at most $\\Delta = 2 \\Gamma \\sigma_K \\sqrt{d} \\, (\\sigma_Q (\\Gamma \\sqrt{d} + "
    "\\|\\beta\\|) + \\|b_Q\\|) / \\sqrt{d_h}$; the shift on the side of the keys and their bias "
    "cancel.",
    why="Heads were pushed towards large logits. In the note's setting they reached {logit_ratio:.3f} of "
    "M, and ranges {span_ratio:.3f} of 2M. With the division by √d_h that models use they reached "
    "{logit_ratio_by_head:.2f} times M, with a shift {logit_ratio_shifted:.0f} times. Ranges "
    "stayed within the corrected Δ: {span_ratio_corrected:.3f} of it.",
    checks=(
        Check(
            "logit_ratio", "claim", "at most", ROUNDING, label="largest logit over M",
            because="A theorem; sizes are set through float64 singular values.",
        ),
        Check(
            "span_ratio", "claim", "at most", ROUNDING, label="largest range of a row over 2M",
            because="A theorem; sizes are set through float64 singular values.",
        ),
        Check(
            "logit_ratio_by_head", "reach", "at most", ROUNDING,
            label="largest logit over M, divided by √d_h",
            because="The same bound with the division that attention really has.",
        ),
        Check(
            "logit_ratio_shifted", "reach", "at most", ROUNDING,
            label="largest logit over M, with a shift",
            because="The same bound for norms as GPT-2 has them.",
        ),
        Check(
            "span_ratio_corrected", "correction", "at most", ROUNDING,
            label="largest range of a row over Δ, all kinds",
            because="A theorem; sizes are set through float64 singular values.",
        ),
        Check(
            "attained_ratio", "correction", "near", 1.0, within=1e-12,
            label="range of a row over Δ for a head that attains it",
            because="An identity: two opposite tokens and a shift along the strongest direction, "
            "float64 rounding.",
        ),
    ),
    seconds=1.5,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Push heads of four kinds."""
    from leadline.claims.attention._attacked_logits import reached

    note = reached("as-the-note", seed=4820 + seed)
    by_head = reached("as-the-note-scaled-by-head", seed=4821 + seed)
    shifted = reached("as-the-note-shifted", seed=4822 + seed)
    biased = reached("open", seed=4823 + seed)
    return Measured(
        {
            "logit_ratio": note.logit,
            "span_ratio": note.span,
            "logit_ratio_by_head": by_head.logit,
            "logit_ratio_shifted": shifted.logit,
            "span_ratio_corrected": max(
                one.span_corrected for one in (note, by_head, shifted, biased)
            ),
            "attained_ratio": _attained(seed),
        }
    )


def _attained(seed: int) -> float:
    """The range of a row over Delta, all of one head's weights, shift and bias along one direction."""
    from leadline.theory import AttentionFacts
    from leadline.theory.attention.logit_span import weight_span

    rng = np.random.default_rng([seed, 4830])
    gain, shift, query, key, bias = np.exp(rng.standard_normal(5))
    e = np.eye(HEAD, WIDTH)[0]
    normed = WIDTH**0.5 * np.array([[1.0], [-1.0]]) * np.eye(WIDTH)[0]
    tokens = gain * normed + shift * np.eye(WIDTH)[0]
    out = np.eye(HEAD)[0]
    queries = tokens @ (query * np.outer(e, out)) + bias * out
    keys = tokens @ (key * np.outer(e, out))
    logits = queries @ keys.T / HEAD**0.5
    span = weight_span(
        AttentionFacts(
            queries=2,
            keys=2,
            positions="none",
            scaling=HEAD**-0.5,
            width=WIDTH,
            gain=gain,
            shift=shift,
            query_weight=query,
            key_weight=key,
            query_bias=bias,
        )
    )
    assert span is not None
    return float(np.ptp(logits, axis=1).max()) / span
