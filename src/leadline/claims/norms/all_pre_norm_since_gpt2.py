"""Since GPT-2 everything has turned to Pre-LN: everything?

A sentence about all of them, so one exception decides. The exceptions looked at are decoders that
are younger than GPT-2 (2019): the OPT variant with its norms after the additions (OPT-350M, 2022,
arXiv 2205.01068), Gemma 2 (2024, arXiv 2408.00118), OLMo 2 (2025, arXiv 2501.00656).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check
from leadline.claims.norms._placements import PLACEMENTS_OF, share

LATER = ("opt-post", "gemma2", "olmo2")
"""Decoders after GPT-2 that are suspected of another placement."""


@claim(
    "all-pre-norm-since-gpt2",
    group="norms",
    notes=("shortcuts",),
    title="Since GPT-2 all models have turned to Pre-LN",
    formula=r"x_{l+1} = x_l + F(LN(x_l))",
    plain="every model since GPT-2: x + F(LN(x))",
    says="After GPT-2 the field turned to Pre-LN altogether: GPT-2, 3, 4 and everything newer.",
    correction="Most did, not all: OPT-350M is Post-LN, OLMo 2 norms only the output of its "
    "branches, Gemma 2 norms before and after the branch.",
    why="Three decoder types that are younger than GPT-2 were built and their norms located. "
    "{exceptions:.0f} of them are something else than Pre-LN: one norms the stream after the "
    "addition, one norms what the branch returns and nothing before it, one does both around the "
    "branch. Of GPT-4 nothing is published.",
    checks=(
        Check(
            "exceptions", "claim", "at most", 0.0,
            label="types after GPT-2 that are not Pre-LN, of three",
            because="A sentence about all has no exception.",
        ),
        Check(
            "opt_post", "correction", "at least", 1.0,
            label="OPT-350M's form norms the stream after the addition (1 is yes)",
            because="One model: yes or no.",
        ),
        Check(
            "olmo_output", "correction", "at least", 1.0,
            label="OLMo 2 norms only what its branches return (1 is yes)",
            because="One model: yes or no.",
        ),
        Check(
            "gemma_both", "correction", "at least", 1.0,
            label="Gemma 2 norms before and after its branches (1 is yes)",
            because="One model: yes or no.",
        ),
    ),
    source="arXiv 2205.01068, 2408.00118, 2501.00656",
    seconds=0.01,
    seeded=False,
    needs=(PLACEMENTS_OF,),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """The placements of three later decoders."""
    found = trials[PLACEMENTS_OF.name]["placements"]
    pre = share(found, LATER, placements=("pre",))
    return Measured(
        {
            "exceptions": float(round((1.0 - pre) * len(LATER))),
            "opt_post": share(found, ("opt-post",), placements=("post",)),
            "olmo_output": share(found, ("olmo2",), placements=("output",)),
            "gemma_both": share(found, ("gemma2",), placements=("sandwich",)),
        }
    )
