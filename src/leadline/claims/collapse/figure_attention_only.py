"""The figure's curve of attention alone: from 34 to nearly 0 in the first layer, and there to the end.

Read on the linear axis of the drawing: after one layer below a tenth of the start, then nothing to
see. What the values below that axis mean is another claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture
from leadline.claims.collapse._note_figure import NOTE_FIGURE, curves


@claim(
    "figure-attention-only",
    group="collapse",
    notes=("deep-dive",),
    title="Attention alone drops in its first layer and stays near zero, as drawn",
    formula=r"34 \to \, \approx 0 \to \dots \to \, \approx 0",
    plain="34 → ≈ 0 → … → ≈ 0",
    says="In the figure the residual of attention alone drops steeply in the first layer, from "
    "34 to nearly 0, and stays there for all further layers.",
    correction="",
    why="The same draw gives {first:.2f} after the first layer, {second:.3f} after the second, "
    "and at most {rest:.1e} from the fourth on. On an axis up to 35 this looks like zero from "
    "the first layer on, though the first drop is only a factor of {factor:.1f}.",
    checks=(
        Check(
            "share",
            "claim",
            "at most",
            0.1,
            label="share of the start after one layer",
            because="Nearly 0 on a linear axis is read as at most a tenth of it.",
        ),
        Check(
            "rest",
            "claim",
            "at most",
            0.01,
            label="largest value from the fourth layer on",
            because="A line at 0.01 on an axis up to 35 cannot be told from zero.",
            log=True,
        ),
    ),
    seconds=0.01,
    needs=(NOTE_FIGURE,),
)
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Read the curve as drawn."""
    drawn = curves(trials, "drawn")["SAN only"]
    sites = tuple(float(site) for site in range(len(drawn)))
    return Measured(
        {
            "first": drawn[1],
            "second": drawn[2],
            "factor": drawn[0] / drawn[1],
            "share": drawn[1] / drawn[0],
            "rest": max(drawn[4:]),
        },
        Picture("layer", "residual", {"attention only": (sites, tuple(drawn))}),
    )
