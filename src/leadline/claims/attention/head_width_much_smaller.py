"""The width of a head is usually much smaller than that of the stream.

"Much smaller" is read as at least tenfold, "usually" as the median over the published recipes that
Leadline knows. W_Q in R^(d x d_h) then maps the stream to a far smaller space.
"""

from __future__ import annotations

import statistics

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check


@claim(
    "head-width-much-smaller",
    group="attention",
    notes=("deep-dive",),
    title="The width of a head is usually much smaller than the width of the stream",
    formula=r"d_h \ll d",
    plain="d_h ≪ d",
    says="The space of queries and keys is usually of far smaller dimension than the space of "
    "embeddings.",
    correction="",
    why="The published models that Leadline knows were asked for both widths. The stream is "
    "{median_ratio:.0f} times as wide as a head in the median of {models:.0f} models, "
    "{least_ratio:.0f} times at the least and {most_ratio:.0f} times at the most.",
    checks=(
        Check(
            "median_ratio",
            "claim",
            "at least",
            10.0,
            label="width of the stream over that of a head, median",
            because="Much smaller is read as at least tenfold.",
        ),
    ),
    seconds=0.02,
    seeded=False,
)
def measure(seed: int) -> Measured:
    """Divide the widths of every published recipe."""
    from leadline.parts.recipes import RECIPES

    ratios: list[float] = []
    for name in RECIPES.names():
        recipe = RECIPES.build(name)
        if name == "default":
            continue
        assert recipe.heads is not None
        own = recipe.choice("attention").options.get("head_width")
        size = own if isinstance(own, int) else recipe.width // recipe.heads
        ratios.append(recipe.width / size)
    return Measured(
        {
            "median_ratio": statistics.median(ratios),
            "least_ratio": min(ratios),
            "most_ratio": max(ratios),
            "models": float(len(ratios)),
        }
    )
