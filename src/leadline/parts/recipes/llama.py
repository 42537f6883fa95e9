"""Llama 2 and a small relative.

    name           layers  width  heads  groups  hidden  vocabulary  context  base     parameters
    llama              32   4096     32      32   11008       32000     4096  1e4   6,738,415,616
    smollm2-135m       30    576      9       3    1536       49152     8192  1e5     134,515,008

Pre-norm RMSNorm with eps 1e-5, SwiGLU, rotary positions, no biases. The head of Llama 2 has a
matrix of its own, that of SmolLM2 is tied. Touvron et al. 2023, arXiv 2307.09288 (Llama 2 7B);
Allal et al. 2025, arXiv 2502.02737 (SmolLM2); eps and vocabulary from the released checkpoints.
"""

from __future__ import annotations

from leadline.parts.recipe import Recipe
from leadline.parts.recipes._recipe import RECIPES


@RECIPES.register("llama")
def llama() -> Recipe:
    """Llama 2 7B: 32 layers of width 4096, RMSNorm, rotary positions, SwiGLU."""
    return Recipe(
        depth=32,
        width=4096,
        heads=32,
        attention="multihead(bias=false)",
        positions="rotary",
        mlp="swiglu(hidden=11008)",
        norm="rmsnorm(eps=1e-5)",
        placement="pre",
        head="linear",
        vocabulary=32000,
        context=4096,
    )


@RECIPES.register("smollm2-135m")
def smollm2_135m() -> Recipe:
    """SmolLM2 135M: 30 layers of width 576 in the manner of Llama, grouped queries, tied head."""
    return llama().but(
        depth=30,
        width=576,
        heads=9,
        attention="multihead(bias=false, groups=3)",
        positions="rotary(base=100000.0)",
        mlp="swiglu(hidden=1536)",
        head="tied",
        vocabulary=49152,
        context=8192,
    )
