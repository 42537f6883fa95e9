"""Longer sentences inevitably have larger attention norms.

The note compares sentences of 1 to 5 tokens with 12 to 18. Claim: the mean norm grows with the number
of tokens, in its own setting of language models: untrained ones of both kinds, and a trained one on
text. "Inevitably" is the reach: sqrt(n) bounds the norm, it does not force it. A head that looks at
its own token has the norm 1 at any length.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from leadline.claims.attention._padded import PADDED
from leadline.claims.attention._trained import text_windows
from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

SHORT, LONG = 3, 15


@claim(
    "norm-grows-with-length",
    group="attention",
    notes=("deep-dive",),
    title="With more tokens the norms of attention inevitably become larger",
    formula=r"n_1 < n_2 \Rightarrow \|A_{n_1}\|_2 < \|A_{n_2}\|_2",
    plain="n₁ < n₂ ⇒ ‖A_n₁‖ < ‖A_n₂‖",
    says="On longer sentences the trend is the same, but the spectral norms inevitably grow with the "
    "number of tokens.",
    correction="In the mean of the heads they do. It is not inevitable: only the bound √n grows of "
    "itself. A head that looks at one token of its own place, such as itself, has the norm 1 at any "
    "length.",
    why="From sentences of 1 to 5 tokens to 12 to 18, the mean norm of small untrained models grows by "
    "{growth_untrained:.2f}; in a trained model from {short:.0f} to {long:.0f} tokens of text by "
    "{growth_trained:.2f}. A head that attends to its own token grows by {growth_own_token:.3f}.",
    checks=(
        Check(
            "growth_untrained", "claim", "at least", 1.05,
            label="growth of the mean norm, untrained models",
            because="Growing is read as by a twentieth at least; draws move it by about 1 percent.",
            over="mean",
        ),
        Check(
            "growth_trained", "claim", "at least", 1.05,
            label="growth of the mean norm, trained model on text",
            because="Growing is read as by a twentieth at least; texts move it by about 1 percent.",
            over="mean",
        ),
        Check(
            "growth_own_token", "reach", "at least", 1.05,
            label="growth of the norm of a head that looks at its own token",
            because="The same twentieth: inevitably means for every head.",
        ),
        Check(
            "own_token_norm", "correction", "near", 1.0, within=1e-9,
            label="norm of such a head at 15 tokens",
            because="Its matrix is the identity, to weights of e^-1000.",
        ),
    ),
    seconds=0.2,
    needs=(PADDED,),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Norms at two lengths, in three settings."""
    import torch

    from leadline.instruments.passes.measurement import measure as measured
    from leadline.lab import pair
    from leadline.numerics.spectra.spectrum import attention_spectral_norm

    lines = trials[PADDED.name]
    untrained = [
        np.mean([lines[f"{name}; {panel}"]["values"] for name in ("gpt1", "gpt2")])
        for panel in ("1 to 5 tokens", "12 to 18 tokens")
    ]
    model = pair.pre()[0]
    trained, own = [], []
    for length in (SHORT, LONG):
        ids = text_windows(seed, length=length, examples=32)
        record = measured(model, ids, probes="attention", seed=seed)
        trained.append(record.by_layer("attention.spectral_norm", point="attention").values.mean())
        # Queries and keys of one token each point its own way, sharply.
        each = 100 * torch.eye(length, dtype=torch.float64)[None]
        own.append(float(attention_spectral_norm(each, each, causal=True).value[0]))
    return Measured(
        {
            "growth_untrained": float(untrained[1] / untrained[0]),
            "growth_trained": float(trained[1] / trained[0]),
            "growth_own_token": own[1] / own[0],
            "own_token_norm": own[1],
            "short": float(SHORT),
            "long": float(LONG),
        }
    )
