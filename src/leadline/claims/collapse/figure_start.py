"""The figure's curves begin at about 34.

Normal tokens with their mean taken away have an expected squared size of (n - 1) d = 9 * 128, and
the root of it is 33.94. Read as: all four curves, means over 32 samples, begin at 34 to the nearest
whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check
from leadline.claims.collapse._note_figure import NOTE_FIGURE, curves


@claim(
    "figure-start",
    group="collapse",
    notes=("deep-dive",),
    title="The residuals of the figure begin at about 34",
    formula=r"\| \mathrm{res}(X) \|_F \approx \sqrt{(n - 1) d} \approx 34",
    plain="‖res(X)‖_F ≈ √((n−1)d) ≈ 34",
    says="In the experiment with ten random tokens of width 128 the residual starts at about 34 "
    "in all four variants.",
    correction="",
    why="The four curves start between {least:.2f} and {most:.2f}. Ten normal tokens of width "
    "128 lose one of ten degrees of freedom with their mean: $\\sqrt{9 \\cdot 128}$ is "
    "{expected:.2f}.",
    checks=(
        Check(
            "least",
            "claim",
            "at least",
            33.0,
            label="smallest start of the four curves",
            because="About 34 is read as within 1; the mean over 32 samples scatters by 0.13.",
        ),
        Check(
            "most",
            "claim",
            "at most",
            35.0,
            label="largest start of the four curves",
            because="About 34 is read as within 1; the mean over 32 samples scatters by 0.13.",
        ),
    ),
    seconds=0.01,
    needs=(NOTE_FIGURE,),
)
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Read the first points of the curves as drawn."""
    starts = [curve[0] for curve in curves(trials, "drawn").values()]
    return Measured({"least": min(starts), "most": max(starts), "expected": (9 * 128) ** 0.5})
