"""DeepNet as one stack of its own: 200 layers of width 512, 8 heads, post-norm with DeepNorm.

Hidden width 2048 and ReLU as in the base Transformer (Vaswani et al. 2017, arXiv 1706.03762),
LayerNorm, weights drawn by the connection's own init. Wang et al. 2022, arXiv 2203.00555, built
translation models of encoder and decoder (their 200-layer model has 100 layers each); this is
the same design as a causal language model. Width and heads are not confirmed against the paper;
vocabulary 32,000 and context 512 are ours.
"""

from __future__ import annotations

from leadline.parts.recipe import Recipe
from leadline.parts.recipes._recipe import RECIPES


@RECIPES.register("deepnet")
def deepnet() -> Recipe:
    """DeepNet: 200 post-norm layers of width 512 with DeepNorm and its init."""
    return Recipe(
        depth=200,
        width=512,
        heads=8,
        mlp="relu",
        norm="layernorm",
        connection="deepnorm",
        placement="post",
        head="tied",
        vocabulary=32000,
        context=512,
    )
