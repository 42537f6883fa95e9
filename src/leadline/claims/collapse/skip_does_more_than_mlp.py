"""MLPs are said to do less against the collapse than skips.

Read for the note's own experiment: the residual after the last layer with skip only and with MLP only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture
from leadline.claims.collapse._note_figure import NOTE_FIGURE, curves


@claim(
    "skip-does-more-than-mlp",
    group="collapse",
    notes=("deep-dive",),
    title="MLPs do less against the collapse than skip connections",
    formula=r"\| \mathrm{res}(X^L) \|_{\mathrm{MLP}} \ll \| \mathrm{res}(X^L) \|_{\mathrm{skip}}",
    plain="‖res(X^L)‖ with MLPs only ≪ with skips only",
    says="The effect of MLPs on the loss of rank is not as thorough as that of skip connections.",
    correction="",
    why="In the note's experiment the residual with skips only ends at {skip:.1f}, a little above its start. "
    "With MLPs only it ends at 10 to the power {mlp:.0f}, which no drawing can show. A skip hands the "
    "differences on as they are; an MLP can only stretch what attention has left of them.",
    checks=(
        Check(
            "kept",
            "claim",
            "at least",
            0.9,
            label="last over first residual, skip only",
            because="Kept is read as at least nine tenths.",
        ),
        Check(
            "mlp",
            "claim",
            "at most",
            -3.0,
            label="log₁₀ of the last residual, MLP only",
            because="Collapsed is read as at least a thousandfold smaller, from a start of 34.",
        ),
    ),
    seconds=0.01,
    needs=(NOTE_FIGURE,),
)
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Read the ends of two curves."""
    logs = curves(trials, "true")
    skip, mlp = logs["skip only"], logs["MLP only"]
    sites = tuple(float(site) for site in range(6))
    return Measured(
        {"skip": 10.0 ** skip[-1], "kept": 10.0 ** (skip[-1] - skip[0]), "mlp": mlp[-1]},
        Picture(
            "layer",
            "log₁₀ of the residual",
            {"skip only": (sites, tuple(skip[:6])), "MLP only": (sites, tuple(mlp[:6]))},
        ),
    )
