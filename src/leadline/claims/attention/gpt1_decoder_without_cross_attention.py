"""GPT-1 is the Transformer's decoder without cross-attention.

Claim: its blocks are masked self-attention and a feed-forward network, with the norm after each
addition as in the decoder of 2017, and nothing attends to another stream. Read from a small random
GPT-1 of Hugging Face: the roles that the anatomy finds, the mask that the probe sees, the gradients
from earlier to later tokens. Reach: that the rest is that decoder's too; its activation is ReLU and
its positions are sines, GPT-1 has GELU and learned positions. Radford et al. 2018.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check


@claim(
    "gpt1-decoder-without-cross-attention",
    group="attention",
    notes=("deep-dive",),
    title="GPT-1 is the Transformer's decoder with cross-attention taken out",
    formula="",
    plain="",
    says="GPT-1 is the decoder of the Transformer without multi-head cross-attention: only masked "
    "multi-head self-attention is kept.",
    correction="It holds for the blocks: masked self-attention and a feed-forward network, each "
    "with a norm after the addition. The activation (GELU, not ReLU) and the positions (learned, "
    "not sines) are GPT-1's own.",
    why="The parts of a small GPT-1 were read from what it does. It has {cross_attentions:.0f} "
    "cross-attentions, every token sees itself and the earlier ones, and a norm stands after each of "
    "the additions. Its activation differs from ReLU by up to {activation_difference}, and its "
    "positions are {learned_positions:.0f} learned vectors.",
    checks=(
        Check(
            "cross_attentions",
            "claim",
            "at most",
            0,
            label="cross-attentions",
            because="A count; taken out means none.",
        ),
        Check(
            "layers_not_causal",
            "claim",
            "at most",
            0,
            label="layers whose attention is not masked",
            because="A count; masked self-attention is kept in every layer.",
        ),
        Check(
            "settled_share",
            "claim",
            "near",
            1.0,
            within=1e-9,
            label="share of additions with a norm after them",
            because="The decoder of 2017 has a norm after every addition: a share of exactly 1.",
        ),
        Check(
            "activation_difference",
            "reach",
            "at most",
            1e-6,
            label="largest difference of the activation from ReLU",
            because="The same function differs by rounding alone, float32.",
            log=True,
        ),
        Check(
            "gelu_error",
            "correction",
            "at most",
            1e-6,
            label="largest difference of the activation from GELU, tanh form",
            because="The same function differs by rounding alone, float32.",
            log=True,
        ),
        Check(
            "learned_positions",
            "correction",
            "at least",
            1,
            label="learned vectors for positions",
            because="A count; sines would need none.",
        ),
    ),
    source="Radford et al. 2018, Improving Language Understanding by Generative Pre-Training; "
    "Vaswani et al. 2017, arXiv 1706.03762",
    seconds=0.06,
)
def measure(seed: int) -> Measured:
    """Read the anatomy, the masks and the activation."""
    import torch

    from leadline.claims.attention._models import hf_model
    from leadline.instruments.passes.measurement import anatomy_of
    from leadline.instruments.passes.measurement import measure as measured
    from leadline.reading.bounds.attention_facts import attention_sublayers

    model = hf_model("openai-gpt", seed=seed)
    ids = torch.randint(100, (2, 12), generator=torch.Generator().manual_seed(4210 + seed))
    anatomy = anatomy_of(model, ids, seed=seed)
    sublayers = [
        one for stack in anatomy.stacks for block in stack.blocks for one in block.sublayers
    ]
    record = measured(model, ids, probes="attention", anatomy=anatomy, seed=seed)
    seen = attention_sublayers(record)
    grid = torch.linspace(-4, 4, 801)
    with torch.no_grad():
        found = model.h[0].mlp.act(grid)
        difference = (found - torch.relu(grid)).abs().max()
        gelu = torch.nn.functional.gelu(grid, approximate="tanh")
    return Measured(
        {
            "cross_attentions": float(sum(one.point == "cross-attention" for one in seen)),
            "layers_not_causal": float(sum(one.mask != "causal" for one in seen)),
            "settled_share": sum(one.settle is not None for one in sublayers) / len(sublayers),
            "activation_difference": float(difference),
            "gelu_error": float((found - gelu).abs().max()),
            "learned_positions": float(model.positions_embed.weight.shape[0]),
        }
    )
