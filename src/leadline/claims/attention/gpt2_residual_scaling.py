"""GPT-2 scales the weights of residual layers by 1/sqrt(N) at the start.

N is "the number of residual layers", which the note adds is the depth. Residual layers are the
additions, two per block: that is the claim. With N the number of blocks, which is what depth means
elsewhere, the factor would be too large by sqrt(2): the reach. Measured on the weights that write to
the stream, of Hugging Face's GPT-2 and of Leadline's own init, at two depths.
"""

from __future__ import annotations

import math

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

WIDTH, DEPTHS, STD = 128, (2, 8), 0.02


@claim(
    "gpt2-residual-scaling",
    group="attention",
    notes=("deep-dive",),
    title="GPT-2 starts its residual weights smaller by the root of their number",
    formula=r"\mathrm{std}(W_{\mathrm{residual}}) = \frac{0.02}{\sqrt{N}}",
    plain="std of residual weights = 0.02 / √N",
    says="The start of GPT-2 takes the accumulation along the residual path into account: the weights "
    "of residual layers are scaled by 1/√N, N being the number of residual layers, the depth.",
    correction="N counts additions, of which each block has two: N is twice the number of blocks.",
    why="The weights that write to the stream were drawn for 2 and 8 blocks. Their standard deviation "
    "times √N is {ratio_additions:.3f} of 0.02 when N counts additions, and {ratio_blocks:.3f} of it "
    "when N counts blocks. Leadline's own GPT-2 init gives {ratio_own:.3f}.",
    checks=(
        Check(
            "ratio_additions", "claim", "near", 1.0, within=0.03,
            label="std times √N over 0.02, N additions, worst",
            because="The deviation of 16,384 weights or more is known to 0.6 percent; five times that.",
        ),
        Check(
            "ratio_blocks", "reach", "near", 1.0, within=0.03,
            label="the same with N blocks",
            because="The same five times 0.6 percent.",
        ),
        Check(
            "ratio_own", "correction", "near", 1.0, within=0.03,
            label="the same for Leadline's init, N additions, worst",
            because="The same five times 0.6 percent.",
        ),
    ),
    source="Radford et al. 2019, Language Models are Unsupervised Multitask Learners",
    seconds=0.09,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """The spread of the weights that write to the stream."""
    from leadline.claims.attention._models import branch_of, hf_model
    from leadline.parts import Transformer

    def worst(ratios: list[float]) -> float:
        return max(ratios, key=lambda one: abs(one - 1))

    additions, blocks, own = [], [], []
    for depth in DEPTHS:
        model = hf_model("gpt2", n_embd=WIDTH, n_layer=depth, seed=seed)
        ours = Transformer(
            depth=depth, width=WIDTH, heads=4, vocabulary=8, context=8, init="gpt2", seed=seed
        )
        for layer, block in enumerate(model.h, start=1):
            for weight in (block.attn.c_proj.weight, block.mlp.c_proj.weight):
                found = float(weight.detach().std()) / STD
                additions.append(found * math.sqrt(2 * depth))
                blocks.append(found * math.sqrt(depth))
            for weight in (
                branch_of(ours, "attention", layer=layer).output.weight,
                branch_of(ours, "mlp", layer=layer).down.weight,
            ):
                own.append(float(weight.detach().std()) / STD * math.sqrt(2 * depth))
    return Measured(
        {
            "ratio_additions": worst(additions),
            "ratio_blocks": sum(blocks) / len(blocks),
            "ratio_own": worst(own),
        }
    )
