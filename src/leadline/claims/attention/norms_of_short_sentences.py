"""Figure 5: on sentences of 1 to 5 tokens the mean norm of GPT-1 ends at about 2.25.

A norm is at most sqrt(n), and n is at most 5: no mean of norms is above sqrt(5) = 2.236, whatever the
lengths, and 2.25 is. The note does not give the lengths. Where all come equally often the mean is at
most that of the roots, 1.68; nearly all sentences would have to have five tokens, and all queries
the same key, for 2.2. So the numbers of the figure cannot be norms of these sentences, whatever the
models are. They can be norms of padded ones: the script pads to the longest
sentence and keeps the rows of padding. A row of padding sees the real keys; one real token padded to
five gives a column of five ones and the norm sqrt(5). The experiment is run both ways with
`reproduce.attention_spectra`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from leadline.claims.attention._padded import PADDED
from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

SAID, READ = 2.25, 2.2
"""What the note reads from the end of its figure, and what it may be to 0.05."""
LONGEST = 5
PANEL = "1 to 5 tokens"


@claim(
    "norms-of-short-sentences",
    group="attention",
    notes=("deep-dive",),
    title="On sentences of 1 to 5 tokens the mean attention norm reaches 2.25",
    formula=r"\frac{1}{128} \sum_s \|A_s\|_2 \approx 2.25, \quad n_s \leq 5",
    plain="mean of ‖A_s‖ ≈ 2.25 with n_s ≤ 5",
    says="For 128 sentences of 1 to 5 tokens the mean norm of the attention of GPT-1 ends at about 2.25 "
    "in the last layer, that of GPT-2 between 1.5 and 2.",
    correction="A sentence of n tokens has norms of at most √n, so the mean is at most √5 = 2.236 "
    "whatever the lengths, and {most_possible:.2f} for lengths drawn evenly. Numbers above that belong to larger matrices, such as those of padded "
    "sentences: one token padded to five has exactly the norm √5.",
    why="No single norm can exceed √5 = 2.236, and the mean of √n over sentences of 1 to 5 tokens, "
    "drawn evenly, is {most_possible:.3f}. Small untrained models were measured as the note's script does it, rows of "
    "padding kept: the mean is {padded_mean:.2f}. With padding removed it is {real_mean:.2f}. One real "
    "token has the norm {single_real:.3f}, and {single_padded:.3f} when it is padded to five.",
    checks=(
        Check(
            "largest_norm", "claim", "at least", SAID,
            label="largest possible norm of five tokens",
            because="The number as the note reads it; no mean is above the largest norm, whatever "
            "the lengths.",
        ),
        Check(
            "most_possible", "claim", "at least", READ,
            label="largest possible mean norm, lengths drawn evenly",
            because="The note reads about 2.25, to 0.05; a mean that cannot be as large refutes it, "
            "for lengths drawn evenly from 1 to 5, as the note does not give them.",
        ),
        Check(
            "single_padded", "correction", "near", 5**0.5, within=1e-5,
            label="norm of one token padded to five",
            because="A column of five ones has the norm √5, in float32.",
        ),
        Check(
            "single_real", "correction", "near", 1.0, within=1e-6,
            label="norm of one token by itself",
            because="A matrix of one weight, which is 1.",
        ),
        Check(
            "raised_by", "correction", "at least", 0.1,
            label="padded mean minus real mean",
            because="The figures are read to 0.1 to 0.25; an artefact of that size spoils them.",
            over="mean",
        ),
    ),
    seconds=0.01,
    needs=(PADDED,),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Compare both ways of measuring, and look at one token."""
    import torch

    from leadline.claims.attention._models import hf_model
    from leadline.numerics.spectra.spectrum import spectral_norm
    from leadline.theory import BOUNDS, AttentionFacts

    largest = BOUNDS.get("sqrt-queries")().value(AttentionFacts(queries=LONGEST, keys=LONGEST))
    assert largest is not None
    lines = trials[PADDED.name]
    real = [lines[f"{name}; {PANEL}"]["values"] for name in ("gpt1", "gpt2")]
    padded = [lines[f"{name}, padding kept; {PANEL}"]["values"] for name in ("gpt1", "gpt2")]
    model = hf_model("gpt2", seed=seed, attn_implementation="eager")
    ids = torch.randint(1, 50, (1, 5), generator=torch.Generator().manual_seed(4960 + seed))
    there = torch.tensor([[1, 0, 0, 0, 0]])
    with torch.no_grad():
        alone = model(ids[:, :1], output_attentions=True).attentions
        filled = model(ids, attention_mask=there, output_attentions=True).attentions
    singles = [float(spectral_norm(torch.stack(given)).value.mean()) for given in (alone, filled)]
    layers = tuple(float(layer) for layer in range(1, len(real[0]) + 1))
    most = lines[f"gpt2; {PANEL}"]["most_possible"]
    return Measured(
        {
            "largest_norm": largest,
            "most_possible": most,
            "padded_mean": float(np.mean(padded)),
            "real_mean": float(np.mean(real)),
            "raised_by": float(np.mean(padded) - np.mean(real)),
            "single_real": singles[0],
            "single_padded": singles[1],
        },
        Picture(
            "layer",
            "mean spectral norm",
            {
                "padding removed": (layers, tuple(np.mean(real, 0).tolist())),
                "padding kept": (layers, tuple(np.mean(padded, 0).tolist())),
                "largest possible": (layers, (most,) * len(layers)),
            },
            faint=("largest possible",),
        ),
    )
