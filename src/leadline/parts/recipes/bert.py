"""BERT base: 12 layers of width 768, 12 heads, post-norm, bidirectional.

Vocabulary 30522, context 512, two types of token, a norm on the embedding, LayerNorm with eps
1e-12, exact GELU. With the head for masked words 109,514,298 parameters. Devlin et al. 2018,
arXiv 1810.04805; vocabulary and eps from the released checkpoint (uncased).
"""

from __future__ import annotations

from leadline.parts.recipe import Recipe
from leadline.parts.recipes._recipe import RECIPES


@RECIPES.register("bert-base")
def bert_base() -> Recipe:
    """BERT base: 12 post-norm layers of width 768 that see both ways, 110 million parameters."""
    return Recipe(
        depth=12,
        width=768,
        heads=12,
        attention="multihead(causal=false)",
        mlp="gelu",
        norm="layernorm(eps=1e-12)",
        placement="post",
        embedding="token(types=2, normed=true)",
        head="masked",
        vocabulary=30522,
        context=512,
    )
