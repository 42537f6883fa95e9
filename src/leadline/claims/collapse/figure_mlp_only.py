"""The figure's curve with MLPs alone: a clear drop in the first layer, nearly 0 two layers later.

Read on the linear axis: below a fifth of the start after one layer, below a hundredth after three.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture
from leadline.claims.collapse._note_figure import NOTE_FIGURE, curves


@claim(
    "figure-mlp-only",
    group="collapse",
    notes=("deep-dive",),
    title="With MLPs alone the residual drops and is near zero two layers later, as drawn",
    formula=r"34 \to \, \downarrow \to \, \approx 0",
    plain="34 → drop → ≈ 0 two layers later",
    says="With MLPs alone there is a clear drop in the first layer, and within two more layers "
    "the residual is nearly 0.",
    correction="",
    why="The same draw gives {first:.2f} after the first layer, {second:.3f} after the second "
    "and {third:.1e} after the third. The text of the note describes the drawing rightly.",
    checks=(
        Check(
            "share",
            "claim",
            "at most",
            0.2,
            label="share of the start after one layer",
            because="A clear drop is read as at least fivefold.",
        ),
        Check(
            "late",
            "claim",
            "at most",
            0.01,
            label="share of the start after three layers",
            because="Nearly 0 on a linear axis is read as at most a hundredth.",
            log=True,
        ),
    ),
    seconds=0.01,
    needs=(NOTE_FIGURE,),
)
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Read the curve as drawn."""
    drawn = curves(trials, "drawn")["MLP only"]
    sites = tuple(float(site) for site in range(len(drawn)))
    return Measured(
        {
            "first": drawn[1],
            "second": drawn[2],
            "third": drawn[3],
            "share": drawn[1] / drawn[0],
            "late": drawn[3] / drawn[0],
        },
        Picture("layer", "residual", {"MLP only": (sites, tuple(drawn))}),
    )
