"""Skips and MLPs together are said to do best in the experiment.

Read as: their residual ends above that of skips alone. In the note's own draw, seed 0, it ends
below; over other draws the two agree within the scatter. Relative to the stream, skips and MLPs end
below. The note's own draw is always run, so the verdict does not hang on the seeds; other seeds
judge the correction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture
from leadline.claims.collapse._note_figure import NOTE_FIGURE, curves

VARIANTS = ("skip only", "skip + MLP")


@claim(
    "figure-skip-and-mlp-is-best",
    group="collapse",
    notes=("deep-dive",),
    title="Skips and MLPs together keep the residual best",
    formula=r"\| \mathrm{res}(X^{12}) \|_{\mathrm{skip + MLP}} > \| \mathrm{res}(X^{12}) \|_{\mathrm{skip}}",
    plain="‖res(X¹²)‖ with skip + MLP > with skip only",
    says="The complete block does best: skips preserve and MLPs inject residual, in perfect agreement with "
    "the theory that skips give a lower bound and MLPs raise rank.",
    correction="The two variants end at the same residual within the scatter of the draw. As a share of the "
    "stream, skips and MLPs end below skips alone.",
    why="In the note's own draw skips alone end at {own_skip:.3f} and skips with MLPs at {own_both:.3f}, the "
    "lower of the two; the lines of the figure cover each other. Over all draws their growth differs by "
    "{growth:.4f}. The share of the residual in the stream ends at {skip_share:.3f} with skips and "
    "{both_share:.3f} with skips and MLPs, because MLPs add more to the mean token than to the "
    "differences.",
    checks=(
        Check(
            "margin",
            "claim",
            "at least",
            0.0,
            label="skip + MLP minus skip only at the end, note's draw",
            because="The best one ends above the other.",
        ),
        Check(
            "growth",
            "correction",
            "near",
            0.0,
            within=0.02,
            label="difference of the growth of the two residuals",
            because="Means over 32 samples scatter by half a per cent; 0.02 is four times that.",
        ),
        Check(
            "share",
            "correction",
            "at most",
            1.0,
            label="relative residual at the end, skip + MLP over skip only",
            because="Below means a ratio below 1.",
        ),
    ),
    seconds=0.08,
    needs=(NOTE_FIGURE,),
)
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """The note's own draw in float32, and the curves of this seed."""
    from leadline.claims.collapse._note_draw import note_ends

    own = note_ends()
    drawn, relative = curves(trials, "drawn"), curves(trials, "relative")
    skip, both = (drawn[name] for name in VARIANTS)
    shares = [10.0 ** relative[name][-1] for name in VARIANTS]
    sites = tuple(float(site) for site in range(len(skip)))
    return Measured(
        {
            "own_skip": own["skip only"],
            "own_both": own["skip + MLP"],
            "margin": own["skip + MLP"] - own["skip only"],
            "growth": both[-1] / both[0] - skip[-1] / skip[0],
            "skip_share": shares[0],
            "both_share": shares[1],
            "share": shares[1] / shares[0],
        },
        Picture(
            "layer",
            "log₁₀ of the relative residual",
            {name: (sites, tuple(relative[name])) for name in VARIANTS},
        ),
    )
