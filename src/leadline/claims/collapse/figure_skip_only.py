"""The figure's curve with skips alone: about 34 throughout, with slight swings, without decay.

Read as: every value stays within a tenth of the start, and the last is not below the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture
from leadline.claims.collapse._note_figure import NOTE_FIGURE, curves


@claim(
    "figure-skip-only",
    group="collapse",
    notes=("deep-dive",),
    title="With skips alone the residual stays on its level, as drawn",
    formula=r"\| \mathrm{res}(X^l) \|_F \approx 34",
    plain="‖res(X^l)‖_F ≈ 34 at every layer",
    says="With skip connections alone the residual is handed on to every layer: it swings "
    "slightly about 34 and does not decay.",
    correction="",
    why="The mean over the samples goes from {start:.2f} to {end:.2f} and stays within "
    "{swing:.3f} of its start, relatively. Of its twelve steps {falls:.0f} go down; it rises, "
    "because each write adds a little residual of its own.",
    checks=(
        Check(
            "swing",
            "claim",
            "at most",
            0.1,
            label="largest relative distance from the start",
            because="The same level is read as within a tenth.",
        ),
        Check(
            "end_share",
            "claim",
            "at least",
            0.99,
            label="last over first value",
            because="No decay is read as less than one per cent, the scatter of the mean.",
        ),
    ),
    seconds=0.01,
    needs=(NOTE_FIGURE,),
)
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Read the curve as drawn."""
    drawn = curves(trials, "drawn")["skip only"]
    sites = tuple(float(site) for site in range(len(drawn)))
    return Measured(
        {
            "start": drawn[0],
            "end": drawn[-1],
            "swing": max(abs(value / drawn[0] - 1.0) for value in drawn),
            "falls": float(sum(after < before for before, after in pairwise(drawn))),
            "end_share": drawn[-1] / drawn[0],
        },
        Picture("layer", "residual", {"skip only": (sites, tuple(drawn))}),
    )
