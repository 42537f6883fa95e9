"""GPT-3 has 96 layers.

Weights and configuration are not published. The paper (Brown et al. 2020, arXiv 2005.14165) gives
175 billion parameters and the width 12288, and it says that the architecture is GPT-2's, with a
context of 2048. That fixes the number of layers: parameters without the embeddings over those of a
block. A block is built without memory and counted. 175 billion is rounded, to half a billion, which is 0.3 layers.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

PARAMETERS, WIDTH, HEADS, CONTEXT = 175e9, 12288, 96, 2048


@claim(
    "gpt3-layers",
    group="norms",
    notes=("shortcuts",),
    title="GPT-3 has 96 layers",
    formula=r"L = 96",
    plain="L(GPT-3) = 96",
    says="Transformers are deep: GPT-3, for one, has 96 layers.",
    correction="",
    why="GPT-3's weights are not published, but its width of 12288 and its 175 billion parameters "
    "are. One block of GPT-2's form at that width was built without memory: it has {block:.4g} "
    "parameters. Without the embeddings there is room for {layers:.2f} such blocks, and "
    "175 billion is rounded, so 96 it is. The paper's own table says the same.",
    checks=(
        Check(
            "layers", "claim", "near", 96.0, within=0.5,
            label="blocks that 175 billion parameters make at width 12288",
            because="The published number is rounded to half a billion, or 0.3 blocks; 95 and 97 "
            "are outside.",
        ),
    ),
    source="Brown et al. 2020, arXiv 2005.14165",
    seconds=0.03,
    seeded=False,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Count a block and the embeddings of GPT-2's recipe at GPT-3's width."""
    import torch

    from leadline.parts import Transformer
    from leadline.parts.recipes import RECIPES

    recipe = RECIPES.get("gpt2")().but(width=WIDTH, heads=HEADS, context=CONTEXT)
    counts: list[int] = []
    for depth in (1, 2):
        with torch.device("meta"):
            model = Transformer(recipe.but(depth=depth))
        counts.append(sum(one.numel() for one in model.parameters()))
    block = counts[1] - counts[0]
    rest = counts[0] - block
    return Measured({"block": float(block), "layers": (PARAMETERS - rest) / block})
