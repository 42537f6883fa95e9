"""A residual connection keeps what came in: low-level information, and signal for reuse.

The talk says that shortcuts keep low-level information, the summary that they keep the signal and
let earlier representations be reused. Read as: a linear map can still read the embedding x_0 from
the stream after the last layer, R^2 on held-out tokens (the probe `recall`), in models that were
trained. The claim is pre-norm beside no skip at 2 and 3 layers, where both train. The reach is 12
layers in pre-norm, and post-norm, which has a skip too, at 6 layers, where it trains.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture
from leadline.claims.training._cells import cell

SKIP_2, NONE_2 = cell("pre", 2), cell("no skip", 2, steps=600)
SKIP_3, NONE_3 = cell("pre", 3), cell("no skip", 3, steps=600)
DEEP, SIX, POST = cell("pre", 12), cell("pre", 6), cell("post", 6)
HALF = "Kept is read as at least half of the variance of the embedding."


@claim(
    "low-level-information-is-kept",
    group="training",
    notes=("shortcuts", "summary"),
    title="A residual connection keeps what came in",
    formula=r"R^2(x_0 \mid x_L) \geq \frac{1}{2}",
    plain="R²(x₀ | x_L) ≥ 1/2",
    says="Shortcuts keep low-level information and hand the signal on, so that earlier features "
    "can be reused.",
    correction="Much more of the embedding can be read from the last layer with a skip than "
    "without. The deeper the stack, the less is left; a skip followed by a norm keeps less.",
    why="How much of the embedding a linear map can read from the stream after the last layer, in "
    "trained models, on held-out tokens: with skip {skip_two:.2f} at 2 layers and {skip_three:.2f} "
    "at 3; without skip {none_two:.2f} and {none_three:.2f}. At 12 layers pre-norm keeps "
    "{deep:.2f}; at 6 layers pre-norm keeps {six:.2f} and post-norm {post:.2f}. In pre-norm the "
    "stream is a sum, and the embedding stays one of its terms, beside more and more others.",
    checks=(
        Check("skip_two", "claim", "at least", 0.5, label="R² with skip, 2 layers", because=HALF),
        Check("skip_three", "claim", "at least", 0.5, label="R² with skip, 3 layers", because=HALF),
        Check(
            "margin", "claim", "at least", 0.2,
            label="R² with skip minus without, the smaller of 2 and 3 layers",
            because="A fifth of the variance is far above what halves of a thousand tokens give by "
            "chance, about 0.02.",
        ),
        Check(
            "deep", "reach", "at least", 0.5, label="R² of pre-norm, 12 layers", because=HALF
        ),
        Check("post", "reach", "at least", 0.5, label="R² of post-norm, 6 layers", because=HALF),
        Check(
            "covered", "correction", "at least", 0.05, label="R² of pre-norm, 2 layers minus 12",
            because="Halves of a thousand tokens give differences of about 0.02 by chance.",
        ),
        Check(
            "normed", "correction", "at least", 0.05,
            label="R² of pre-norm minus post-norm, 6 layers",
            because="Halves of a thousand tokens give differences of about 0.02 by chance.",
        ),
    ),
    seconds=0.01,
    needs=(SKIP_2, NONE_2, SKIP_3, NONE_3, DEEP, SIX, POST),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """R² of the embedding at every layer of trained models."""
    kept = {
        "pre-norm, 2 layers": trials[SKIP_2.name]["recall"],
        "no skip, 2 layers": trials[NONE_2.name]["recall"],
        "pre-norm, 3 layers": trials[SKIP_3.name]["recall"],
        "no skip, 3 layers": trials[NONE_3.name]["recall"],
        "pre-norm, 12 layers": trials[DEEP.name]["recall"],
        "pre-norm, 6 layers": trials[SIX.name]["recall"],
        "post-norm, 6 layers": trials[POST.name]["recall"],
    }
    last = [float(values[-1]) for values in kept.values()]
    lines = {
        name: (tuple(float(layer) for layer in range(len(values))), tuple(map(float, values)))
        for name, values in kept.items()
    }
    return Measured(
        {
            "skip_two": last[0],
            "none_two": last[1],
            "skip_three": last[2],
            "none_three": last[3],
            "margin": min(last[0] - last[1], last[2] - last[3]),
            "deep": last[4],
            "six": last[5],
            "post": last[6],
            "covered": last[0] - last[4],
            "normed": last[5] - last[6],
        },
        Picture("layer", "R² of the embedding", lines),
    )
