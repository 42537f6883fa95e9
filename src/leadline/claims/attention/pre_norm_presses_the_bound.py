"""Pre-norm presses the bound from sqrt(n) to a constant that does not depend on depth.

Two halves. That the bound does not depend on depth: M at the start is the same in all layers, so that
half is right. That it is pressed below sqrt(n): read as at most 90 % of sqrt(n), at GPT-2's start and
in a trained pre-norm model. M there is 14 to 50, and e^{-2M} is nothing: from M = 1/2 ln n + 1 on the
bound is at least sqrt(n) / sqrt(1 + e^{-2}) = 0.94 sqrt(n). With small weights (GPT-2's
draw at width 64, where M is below 1) the bound does press: the condition.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from leadline.claims.attention._started import STARTED, TOKENS
from leadline.claims.attention._trained import TRAINED
from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

CONTEXT, WIDTH = 1024, 64
SIZES = (64, 1024, 10**6)


@claim(
    "pre-norm-presses-the-bound",
    group="attention",
    notes=("deep-dive",),
    title="Pre-norm presses the bound on the norm from √n to a constant free of depth",
    formula=r"\sqrt{n} \rightarrow \sqrt{c_{\max}(M)}",
    plain="√n → √c_max(M)",
    says="Pre-norm gives a tighter bound: from possibly √n down to a constant that does not depend on "
    "the depth.",
    correction="The bound does not depend on the depth, but it is within a tenth of √n wherever M is "
    "above $\\frac{1}{2} \\ln n + 1$: at GPT-2's start and in trained models. It presses only for small weights, "
    "such as GPT-2's draw in a model of width 64.",
    why="The note's bound was computed from measured weights. At GPT-2's start it is "
    "{share_gpt2:.6f} of √n, in a trained pre-norm model {share_trained:.6f}, while the measured norm "
    "is {share_measured:.2f} of √n. In a narrow untrained model with M = {narrow_reach:.2f} it is "
    "{share_narrow:.2f}. Over 24 layers it changes by {depth_change:.1%}.",
    checks=(
        Check(
            "share_gpt2", "claim", "at most", 0.9,
            label="bound over √n, GPT-2's start",
            because="Pressed is read as lower by a tenth at least.",
        ),
        Check(
            "share_trained", "claim", "at most", 0.9,
            label="bound over √n, trained pre-norm model, least layer",
            because="Pressed is read as lower by a tenth at least.", over="mean",
        ),
        Check(
            "depth_change", "claim", "at most", 0.2,
            label="spread of the bound over 24 layers at the start, relative",
            because="Free of depth: what is left is the spread of drawn spectral norms, which is some "
            "percent; a fifth is asked for.",
        ),
        Check(
            "share_at_edge", "correction", "at least", 0.9,
            label="bound over √n where M is ½ ln n + 1, least of 64 to a million tokens",
            because="A theorem: at least one over the root of 1 + e^(-2), which is 0.94.",
        ),
        Check(
            "share_narrow", "correction", "at most", 0.9,
            label="bound over √n, narrow model at GPT-2's draw",
            because="Pressed is read as lower by a tenth at least.",
        ),
        Check(
            "measured_over_bound", "correction", "at most", 1.0,
            label="measured norm over the causal bound at the measured logits",
            because="A theorem for causal heads; norms and spans come with rounding of 1e-6, and the "
            "two are far apart.",
        ),
    ),
    seconds=0.08,
    needs=(TRAINED, STARTED),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """The note's bound from measured weights, in three models."""
    from leadline.claims.attention._gpt2_start import gpt2_start
    from leadline.theory import BOUNDS, AttentionFacts

    written = BOUNDS.get("pre-norm-as-written")()
    at_gpt2 = written.value(gpt2_start(seed, tokens=CONTEXT))
    assert at_gpt2 is not None
    pre, tokens = trials[TRAINED.name]["pre"], trials[TRAINED.name]["tokens"]
    edges: list[float] = []
    for size in SIZES:  # M = 1/2 ln n + 1, set by the gain
        gain = math.sqrt((0.5 * math.log(size) + 1) / WIDTH**0.5)
        facts = AttentionFacts(
            queries=size, keys=size, width=WIDTH, gain=gain, query_weight=1.0, key_weight=1.0
        )
        at_edge = written.value(facts)
        assert at_edge is not None
        edges.append(at_edge / size**0.5)
    cell = trials[STARTED.name]["pre-gpt2"]
    narrow, reach = [], []
    for gain, query, key in zip(
        cell["norm_gain"], cell["query_weight"], cell["key_weight"], strict=True
    ):
        facts = AttentionFacts(
            queries=TOKENS, keys=TOKENS, width=WIDTH, gain=gain, query_weight=query, key_weight=key
        )
        value = written.value(facts)
        assert value is not None
        narrow.append(value)
        reach.append(gain**2 * query * key * WIDTH**0.5)
    layers = tuple(float(layer) for layer in range(1, len(pre["spectral_norm"]) + 1))
    bounds = np.array(narrow)
    return Measured(
        {
            "share_gpt2": at_gpt2 / CONTEXT**0.5,
            "share_trained": min(pre["pre-norm-as-written"]) / tokens**0.5,
            "share_measured": float(np.mean(pre["spectral_norm"])) / tokens**0.5,
            "share_at_edge": min(edges),
            "share_narrow": float(bounds.mean()) / TOKENS**0.5,
            "narrow_reach": float(np.mean(reach)),
            "depth_change": float((bounds.max() - bounds.min()) / bounds.mean()),
            "measured_over_bound": max(
                max(heads) / bound
                for heads, bound in zip(
                    pre["spectral_norm_by_head"], pre["causal-measured"], strict=True
                )
            ),
        },
        Picture(
            "layer",
            "spectral norm",
            {
                "measured, trained pre-norm model": (layers, tuple(pre["spectral_norm"])),
                "the note's bound": (layers, tuple(pre["pre-norm-as-written"])),
                "square root of n": (layers, (tokens**0.5,) * len(layers)),
            },
            faint=("the note's bound", "square root of n"),
        ),
    )
