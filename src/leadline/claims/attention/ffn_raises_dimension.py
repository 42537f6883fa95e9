"""W_1 raises the dimension, W_2 brings it back.

Claim: in the models that the note speaks of, GPT-1 and GPT-2, and in the dense models that Leadline
knows, the hidden width is larger than the stream. Reach: everywhere. The experts of a mixture are
narrower than the stream (Qwen3 with 128 experts: 768 against 2048 in its published configuration),
and the note's own experiment on rank collapse has an MLP as wide as the stream.
"""

from __future__ import annotations

from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check


@claim(
    "ffn-raises-dimension",
    group="attention",
    notes=("deep-dive",),
    title="The first matrix of the MLP raises the dimension, the second lowers it again",
    formula=r"W_1 \in \mathbb{R}^{d \times d_{ff}}, \; W_2 \in \mathbb{R}^{d_{ff} \times d}, \; "
    r"d_{ff} > d",
    plain="W₁: d → d_ff, W₂: d_ff → d, d_ff > d",
    says="W_1 acts as a raising of the dimension, W_2 lowers it back to the number of channels.",
    correction="So it is in dense models, four times in GPT-2. The experts of a mixture can be "
    "narrower than the stream: together they raise the dimension, each of them need not.",
    why="The hidden width was read from the weights of the published dense models that Leadline "
    "knows: it is {least_ratio:.2f} to {most_ratio:.2f} times the width of the stream, "
    "{gpt2_ratio:.0f} times in GPT-2. In a published mixture of experts it is "
    "{expert_ratio:.3f} times, and in the block of the note's own experiment {note_ratio:.0f}.",
    checks=(
        Check(
            "gpt2_ratio",
            "claim",
            "near",
            4.0,
            within=1e-9,
            label="hidden width over width in GPT-2",
            because="A quotient of two whole numbers of the published model.",
        ),
        Check(
            "least_ratio",
            "claim",
            "at least",
            1.01,
            label="hidden width over width, smallest of the dense models",
            because="Raising means above one; widths are whole numbers of hundreds.",
        ),
        Check(
            "expert_ratio",
            "reach",
            "at least",
            1.01,
            label="the same for one expert of a mixture",
            because="Raising means above one.",
        ),
        Check(
            "note_ratio",
            "reach",
            "at least",
            1.01,
            label="the same in the note's own experiment",
            because="Raising means above one.",
        ),
        Check(
            "experts_together",
            "correction",
            "at least",
            1.01,
            label="the same for all experts of the mixture together",
            because="Raising means above one.",
            log=True,
        ),
    ),
    seconds=0.1,
    seeded=False,
)
def measure(seed: int) -> Measured:
    """Build one layer of each recipe without weights, and read the shapes."""
    import torch

    from leadline.claims.attention._models import hf_configuration
    from leadline.experiments.rank_collapse.note_block import note_blocks
    from leadline.parts import Transformer
    from leadline.parts.branches import Branch
    from leadline.parts.recipes import RECIPES

    ratios: dict[str, float] = {}
    for name in RECIPES.names():
        if name == "default":
            continue
        with torch.device("meta"):
            model = Transformer(RECIPES.build(name).but(depth=1, vocabulary=8))
        found = [
            weight.shape[0] / weight.shape[1]
            for part in model.modules()
            if isinstance(part, Branch)
            for role, weight in part.weights()
            if role == "up"
        ]
        ratios[name] = found[0]
    mixture = hf_configuration("qwen3_moe")
    with torch.random.fork_rng(devices=[]):
        note: Any = note_blocks(1, 128, 1, mlp=True, skip=False, norm="layernorm", causal=False)[0]
    return Measured(
        {
            "gpt2_ratio": ratios["gpt2"],
            "least_ratio": min(ratios.values()),
            "most_ratio": max(ratios.values()),
            "expert_ratio": mixture.moe_intermediate_size / mixture.hidden_size,
            "experts_together": mixture.num_experts
            * mixture.moe_intermediate_size
            / mixture.hidden_size,
            "note_ratio": note.up.weight.shape[0] / note.up.weight.shape[1],
        }
    )
