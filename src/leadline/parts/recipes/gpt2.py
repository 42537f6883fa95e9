"""GPT-2 in its four sizes.

    name           layers  width  heads   parameters
    gpt2               12    768     12   124,439,808
    gpt2-medium        24   1024     16   354,823,168
    gpt2-large         36   1280     20   774,030,080
    gpt2-xl            48   1600     25 1,557,611,200

Vocabulary 50257, context 1024, pre-norm LayerNorm with eps 1e-5, GELU in its tanh form, an MLP of
four times the width, learned positions, the head tied to the embedding. Radford et al. 2019,
"Language Models are Unsupervised Multitask Learners", and the released checkpoints.
"""

from __future__ import annotations

from leadline.parts.recipe import Recipe
from leadline.parts.recipes._recipe import RECIPES


@RECIPES.register("gpt2")
def gpt2() -> Recipe:
    """GPT-2 small: 12 layers of width 768, 124 million parameters."""
    return Recipe(
        depth=12,
        width=768,
        heads=12,
        mlp="gelu_tanh",
        norm="layernorm",
        placement="pre",
        head="tied",
        vocabulary=50257,
        context=1024,
    )


@RECIPES.register("gpt2-medium")
def gpt2_medium() -> Recipe:
    """GPT-2 medium: 24 layers of width 1024, 355 million parameters."""
    return gpt2().but(depth=24, width=1024, heads=16)


@RECIPES.register("gpt2-large")
def gpt2_large() -> Recipe:
    """GPT-2 large: 36 layers of width 1280, 774 million parameters."""
    return gpt2().but(depth=36, width=1280, heads=20)


@RECIPES.register("gpt2-xl")
def gpt2_xl() -> Recipe:
    """GPT-2 XL: 48 layers of width 1600 with 25 heads, 1558 million parameters."""
    return gpt2().but(depth=48, width=1600, heads=25)
