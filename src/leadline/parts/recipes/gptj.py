"""GPT-J 6B: 28 layers of width 4096, 16 heads, attention and MLP side by side behind one norm.

Vocabulary 50400, context 2048, LayerNorm with eps 1e-5, GELU in its tanh form, rotary positions
on 64 of 256 features in neighbouring pairs, no biases in attention, a head of its own with bias:
6,050,882,784 parameters. Wang and Komatsuzaki 2021, and the released checkpoint.
"""

from __future__ import annotations

from leadline.parts.recipe import Recipe
from leadline.parts.recipes._recipe import RECIPES


@RECIPES.register("gpt-j")
def gptj() -> Recipe:
    """GPT-J 6B: 28 layers of width 4096, attention and MLP side by side."""
    return Recipe(
        depth=28,
        width=4096,
        heads=16,
        attention="multihead(bias=false)",
        positions="rotary(share=0.25, pairs=neighbours)",
        mlp="gelu_tanh",
        norm="layernorm",
        placement="parallel",
        head="linear(bias=true)",
        vocabulary=50400,
        context=2048,
    )
