"""GPT-NeoX and Pythia: attention and MLP side by side, each behind a norm of its own.

    name           layers  width  heads  vocabulary       parameters
    gpt-neox           44   6144     64       50432   20,554,567,680
    pythia-160m        12    768     12       50304      162,322,944

Context 2048, LayerNorm with eps 1e-5, exact GELU, rotary positions on a quarter of each head, a
head of its own. Black et al. 2022, arXiv 2204.06745; Biderman et al. 2023, arXiv 2304.01373.
"""

from __future__ import annotations

from leadline.parts.recipe import Recipe
from leadline.parts.recipes._recipe import RECIPES


@RECIPES.register("gpt-neox")
def gpt_neox() -> Recipe:
    """GPT-NeoX 20B: 44 layers of width 6144, attention and MLP side by side, two norms."""
    return Recipe(
        depth=44,
        width=6144,
        heads=64,
        positions="rotary(share=0.25)",
        mlp="gelu",
        norm="layernorm",
        placement="parallel(norms=2)",
        head="linear",
        vocabulary=50432,
        context=2048,
    )


@RECIPES.register("pythia-160m")
def pythia_160m() -> Recipe:
    """Pythia 160M: GPT-NeoX with 12 layers of width 768."""
    return gpt_neox().but(depth=12, width=768, heads=12, vocabulary=50304)
