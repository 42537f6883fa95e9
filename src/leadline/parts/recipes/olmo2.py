"""OLMo-2 1B: 16 layers of width 2048, 16 heads, norms on the output of each branch.

Hidden width 8192 (SwiGLU), vocabulary 100352, context 4096, rotary base 500,000, RMSNorm with eps
1e-6, also on queries and keys over all heads, no biases, a head of its own: 1,484,916,736
parameters. OLMo team 2025, arXiv 2501.00656; sizes of the released 1B checkpoint (0425).
"""

from __future__ import annotations

from leadline.parts.recipe import Recipe
from leadline.parts.recipes._recipe import RECIPES


@RECIPES.register("olmo2")
def olmo2() -> Recipe:
    """OLMo-2 1B: 16 layers of width 2048, normed where the branch ends."""
    return Recipe(
        depth=16,
        width=2048,
        heads=16,
        attention="multihead(bias=false, qk_norm=width)",
        positions="rotary(base=500000.0)",
        mlp="swiglu(hidden=8192)",
        norm="rmsnorm(eps=1e-6)",
        placement="output",
        head="linear",
        vocabulary=100352,
        context=4096,
    )
