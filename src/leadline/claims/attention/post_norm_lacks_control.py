"""Post-norm lacks the control that pre-norm has: its attention norms rise with depth towards sqrt(n).

From the second layer on, post-norm attention also reads the output of a norm, so the same bound
holds: M is the same number for the same weights. Only the first layer has none. The claim has three
parts: the bound rises from layer to layer, the norms rise, and trained post-norm attention has larger
norms than pre-norm (the note's figures: by 0.1 or more). All are measured: at the start over 24 layers
with several draws, and on the two trained models, which are one draw of training each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from leadline.claims.attention._started import DEPTH, STARTED
from leadline.claims.attention._trained import TRAINED
from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture


def _reach(cell: Mapping[str, Any]) -> np.ndarray:
    """Gamma^2 sigma_Q sigma_K from the second layer on."""
    gain, query, key = (
        np.array(cell[name][1:], dtype=float)
        for name in ("norm_gain", "query_weight", "key_weight")
    )
    return gain**2 * query * key


@claim(
    "post-norm-lacks-control",
    group="attention",
    notes=("deep-dive",),
    title="In post-norm models the norm of attention rises with depth towards √n",
    formula=r"\|A_l\|_2 \rightarrow \sqrt{n} \quad (l \rightarrow L)",
    plain="post-norm: ‖A_l‖ → √n with depth l",
    says="With post-norm the bound on attention may rise with depth up to √n, and its norms are clearly "
    "above those of pre-norm when there are a dozen layers; it lacks the clamp that pre-norm has.",
    correction="From the second layer on, post-norm attention reads the output of a norm too, and the "
    "same bound holds with the same M. Only the first layer, which reads the embeddings, has none. "
    "The norms do not rise with depth.",
    why="In models with the same weights M is the same for both placements from layer 2 on: the ratio "
    "is {reach_ratio:.6f}. Over 24 post-norm layers M changes by a factor of {reach_growth:.2f} and the "
    "measured norm by {norm_growth:.2f}. After training, in one model of each kind, the mean norms are {trained_post:.2f} (post-norm) "
    "and {trained_pre:.2f} (pre-norm).",
    checks=(
        Check(
            "reach_growth", "claim", "at least", 1.5,
            label="growth of M from layer 2 to 24, post-norm",
            because="Rising means more than the spread of drawn spectral norms, some percent: half as "
            "much again.",
            over="mean",
        ),
        Check(
            "norm_growth", "claim", "at least", 1.1,
            label="growth of the norm from layer 2 to 24, post-norm",
            because="The note's curves rise by a tenth and more; draws move it by some percent.",
            over="mean",
        ),
        Check(
            "trained_gap", "claim", "at least", 0.1,
            label="mean norm of trained post-norm minus pre-norm",
            because="The note reads 0.1 to 0.25 from its figures.", over="mean",
        ),
        Check(
            "reach_ratio", "correction", "near", 1.0, within=1e-5,
            label="M of post-norm over M of pre-norm, worst layer from the second on",
            because="The same weights and the same gain of 1, read in float32.",
        ),
        Check(
            "layers_without_norm", "correction", "near", 1.0, within=1e-9,
            label="layers of the post-norm model whose attention reads no norm",
            because="A count: the first layer alone.",
        ),
    ),
    seconds=0.01,
    needs=(STARTED, TRAINED),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Compare placements at the start and after training."""
    started, trained = trials[STARTED.name], trials[TRAINED.name]
    pre, post = started["pre-xavier"], started["post-xavier"]
    ratio = _reach(post) / _reach(pre)
    norms = post["spectral_norm"]
    layers = tuple(float(layer) for layer in range(1, DEPTH + 1))
    means = {name: float(np.mean(trained[name]["spectral_norm"])) for name in ("pre", "post")}
    return Measured(
        {
            "reach_growth": float(_reach(post)[-1] / _reach(post)[0]),
            "norm_growth": norms[-1] / norms[1],
            "trained_post": means["post"],
            "trained_pre": means["pre"],
            "trained_gap": means["post"] - means["pre"],
            "reach_ratio": float(ratio[np.abs(ratio - 1).argmax()]),
            "layers_without_norm": float(sum(not one for one in trained["post"]["normed"])),
        },
        Picture(
            "layer",
            "mean spectral norm",
            {
                "pre-norm": (layers, tuple(pre["spectral_norm"])),
                "post-norm": (layers, tuple(norms)),
            },
        ),
    )
