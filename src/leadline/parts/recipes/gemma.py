"""Gemma 2B: 18 layers of width 2048, 8 heads of 256, one group of keys and values.

Hidden width 16384 (GEGLU), vocabulary 256,000, context 8192, RMSNorm with eps 1e-6 that stores
its gain minus one, rotary positions, the embedding times sqrt(width), no biases, a tied head:
2,506,172,416 parameters. Gemma team 2024, arXiv 2403.08295; sizes of the released checkpoint.
"""

from __future__ import annotations

from leadline.parts.recipe import Recipe
from leadline.parts.recipes._recipe import RECIPES


@RECIPES.register("gemma")
def gemma() -> Recipe:
    """Gemma 2B: 18 layers of width 2048, a scaled embedding, GEGLU, one group of keys and values."""
    return Recipe(
        depth=18,
        width=2048,
        heads=8,
        attention="multihead(bias=false, groups=1)",
        positions="rotary",
        mlp="geglu(hidden=16384)",
        norm="rmsnorm(eps=1e-6, offset=1.0)",
        placement="pre",
        embedding="token(scale=sqrt_width)",
        head="tied",
        vocabulary=256000,
        context=8192,
    )
