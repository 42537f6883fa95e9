"""GPT-2 moved the norm to the input of each sub-block and added one at the end.

Read from small random models of Hugging Face: where the norms stand in the anatomy (which is proved
by the balance of every write), and what enters GPT-2's last norm. "After the last self-attention
block" is read as after the last block, attention and MLP, as the paper's blocks are.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check


@claim(
    "gpt2-norms-moved",
    group="attention",
    notes=("deep-dive",),
    title="GPT-2 has its norms before each branch and one more after the last block",
    formula=r"H_{l+1} = H_l + \mathrm{SubLayer}(\mathrm{LN}(H_l))",
    plain="H_(l+1) = H_l + SubLayer(LN(H_l)), and a norm at the end",
    says="In GPT-2 LayerNorm stands at the input of each sub-block, like in a pre-activation ResNet, "
    "and another one follows the last self-attention block; GPT-1 had it after the addition.",
    correction="",
    why="The writes of small models were read and proved. In GPT-2 {gpt2_pre:.0f} of {writes:.0f} "
    "branches have the norm in front and none after the addition; in GPT-1 {gpt1_post:.0f} of "
    "{writes:.0f} have it after. GPT-2's last norm gets exactly what the last block gives.",
    checks=(
        Check(
            "gpt2_not_pre", "claim", "at most", 0,
            label="branches of GPT-2 without a norm in front, or with one after",
            because="A count over all writes: none may be otherwise.",
        ),
        Check(
            "gpt1_not_post", "claim", "at most", 0,
            label="branches of GPT-1 without a norm after the addition",
            because="A count over all writes: none may be otherwise.",
        ),
        Check(
            "final_norm_error", "claim", "at most", 0.0,
            label="input of GPT-2's last norm against the last block's output",
            because="The same tensor, so there is no rounding.",
        ),
    ),
    source="Radford et al. 2019, Language Models are Unsupervised Multitask Learners",
    seconds=0.05,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Read both anatomies, and watch the last norm."""
    import torch

    from leadline.claims.attention._models import hf_model
    from leadline.instruments.passes.measurement import anatomy_of

    ids = torch.randint(100, (2, 10), generator=torch.Generator().manual_seed(4900 + seed))
    placements: dict[str, list[tuple[str, bool]]] = {}
    models = {name: hf_model(name, seed=seed) for name in ("gpt2", "openai-gpt")}
    for name, model in models.items():
        anatomy = anatomy_of(model, ids, seed=seed)
        placements[name] = [
            (one.placement, one.settle is not None)
            for stack in anatomy.stacks
            for block in stack.blocks
            for one in block.sublayers
        ]
    gpt2, seen = models["gpt2"], []
    hooks = [
        gpt2.h[-1].register_forward_hook(
            lambda _m, _i, out: seen.append(out[0] if isinstance(out, tuple) else out)
        ),
        gpt2.ln_f.register_forward_hook(lambda _m, given, _o: seen.append(given[0])),
    ]
    try:
        with torch.no_grad():
            gpt2(ids)
    finally:
        for hook in hooks:
            hook.remove()
    pre = sum(placement == "pre" and not settled for placement, settled in placements["gpt2"])
    post = sum(settled for _, settled in placements["openai-gpt"])
    writes = len(placements["gpt2"])
    return Measured(
        {
            "writes": float(writes),
            "gpt2_pre": float(pre),
            "gpt2_not_pre": float(writes - pre),
            "gpt1_post": float(post),
            "gpt1_not_post": float(len(placements["openai-gpt"]) - post),
            "final_norm_error": float((seen[0] - seen[1]).abs().max()),
        }
    )
