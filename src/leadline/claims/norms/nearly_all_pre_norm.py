"""Do nearly all large language models of today use Pre-LN?

Counted over the decoder types of Hugging Face that Leadline's zoo holds: types, not models in use.
The notes set Pre-LN against Post-LN, so "claim" is that nearly all leave the stream without a norm
after the addition. "reach" takes the formula at its word, x + F(LN(x)): a norm before every branch
and none elsewhere. Nearly all: nine in ten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check
from leadline.claims.norms._placements import PLACEMENTS_OF, share

STREAM_FREE = ("pre", "sandwich", "output", "none")
"""Placements that put no norm on the stream itself."""


@claim(
    "nearly-all-pre-norm",
    group="norms",
    notes=("shortcuts", "summary", "textbook", "deep-dive"),
    title="Nearly all large language models of today are Pre-LN",
    formula=r"x_{l+1} = x_l + F(LN(x_l))",
    plain="nearly all: x + F(LN(x))",
    says="Almost all current large language models use Pre-LN; since GPT-2 it is the usual choice.",
    correction="Nearly all leave the stream without a norm after the addition. The exact form "
    "$x + F(LN(x))$ is less common than that: some put a second norm on the output of the branch "
    "(Gemma 2, GLM 4), some only that one (OLMo 2).",
    why="The norms of {types:.0f} decoder types of Hugging Face were located. In "
    "{stream_free:.2f} of them nothing norms the stream after an addition, so Post-LN is indeed "
    "rare ({post:.2f}). In {exact:.2f} every write is $x + F(LN(x))$ and nothing else; the "
    "others have norms on the output of the branch, alone or as a second one. These are shares "
    "of model types, not of models in use.",
    checks=(
        Check(
            "stream_free", "claim", "at least", 0.9,
            label="share of decoder types without a norm on the stream",
            because="Nearly all: nine in ten.",
        ),
        Check(
            "exact", "reach", "at least", 0.9,
            label="share of decoder types with x + F(LN(x)) in every write",
            because="Nearly all: nine in ten.",
        ),
        Check(
            "post", "correction", "at most", 0.1,
            label="share of decoder types with a norm after an addition",
            because="Rare: one in ten.",
        ),
        Check(
            "output_norms", "correction", "at least", 0.05,
            label="share of decoder types with a norm on the output of a branch",
            because="Not rare: at least one in twenty.",
        ),
    ),
    source="",
    seconds=0.01,
    seeded=False,
    needs=(PLACEMENTS_OF,),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Count the placements of all decoder types that were read."""
    kept = trials[PLACEMENTS_OF.name]
    found = kept["placements"]
    read = [name for name in kept["decoders"] if name in found]
    with_output = [name for name in read if {"sandwich", "output"} & set(found[name])]
    stream_free = share(found, read, placements=STREAM_FREE)
    return Measured(
        {
            "types": float(len(read)),
            "stream_free": stream_free,
            "exact": share(found, read, placements=("pre",)),
            "post": 1.0 - stream_free,
            "output_norms": len(with_output) / len(read),
        }
    )
