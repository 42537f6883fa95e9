"""The figure's curve with skips and MLPs: it rises slightly and stays above its start.

Read as: no later value is below the first, and the last is above it by at most a tenth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture
from leadline.claims.collapse._note_figure import NOTE_FIGURE, curves


@claim(
    "figure-skip-and-mlp",
    group="collapse",
    notes=("deep-dive",),
    title="With skips and MLPs the residual rises slightly above its start, as drawn",
    formula=r"\| \mathrm{res}(X^{12}) \|_F \gtrsim \| \mathrm{res}(X) \|_F",
    plain="‖res(X¹²)‖_F slightly above ‖res(X)‖_F",
    says="With both skips and MLPs the residual does not decay but rises slightly with depth "
    "and stays above its first level.",
    correction="",
    why="The mean over the samples goes from {start:.2f} to {end:.2f}, and no layer is below "
    "the start (least ratio {least:.4f}). Seen relative to the stream it falls, from "
    "{first_share:.3f} to {last_share:.3f}: the mean token grows faster than the differences.",
    checks=(
        Check(
            "least",
            "claim",
            "at least",
            1.0,
            label="smallest later value over the first",
            because="Above its first level: no ratio is below 1.",
        ),
        Check(
            "rise",
            "claim",
            "near",
            1.0,
            within=0.1,
            label="last over first value",
            because="Slightly is read as at most a tenth.",
        ),
    ),
    seconds=0.01,
    needs=(NOTE_FIGURE,),
)
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Read the curve as drawn, and the share of the stream."""
    drawn = curves(trials, "drawn")["skip + MLP"]
    relative = curves(trials, "relative")["skip + MLP"]
    sites = tuple(float(site) for site in range(len(drawn)))
    return Measured(
        {
            "start": drawn[0],
            "end": drawn[-1],
            "least": min(drawn[1:]) / drawn[0],
            "rise": drawn[-1] / drawn[0],
            "first_share": 10.0 ** relative[0],
            "last_share": 10.0 ** relative[-1],
        },
        Picture("layer", "residual", {"skip + MLP": (sites, tuple(drawn))}),
    )
