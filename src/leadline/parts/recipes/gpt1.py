"""GPT-1: 12 layers of width 768, 12 heads, post-norm, 116,534,784 parameters.

Vocabulary 40478, context 512, LayerNorm with eps 1e-5, GELU in its tanh form, learned positions,
the head tied to the embedding. Radford et al. 2018, "Improving Language Understanding by
Generative Pre-Training"; vocabulary and eps from the released checkpoint.
"""

from __future__ import annotations

from leadline.parts.recipe import Recipe
from leadline.parts.recipes._recipe import RECIPES


@RECIPES.register("gpt1")
def gpt1() -> Recipe:
    """GPT-1: 12 post-norm layers of width 768, 117 million parameters."""
    return Recipe(
        depth=12,
        width=768,
        heads=12,
        mlp="gelu_tanh",
        norm="layernorm",
        placement="post",
        head="tied",
        vocabulary=40478,
        context=512,
    )
