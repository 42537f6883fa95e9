"""With W_V = 0 in every layer and a skip, the residual stays exactly as it is.

An identity: every update is zero.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

DEPTH, WIDTH, TOKENS = 30, 16, 8


@claim(
    "zero-values-keep-the-residual",
    group="collapse",
    notes=("deep-dive",),
    title="With skips and zero value matrices the residual stays as it is",
    formula=r"W_V^l = 0 \Rightarrow \| \mathrm{res}(X^L) \| = \| \mathrm{res}(X) \|",
    plain="W_V = 0 ⇒ ‖res(X^L)‖ = ‖res(X)‖",
    says="The simplest example of weights that keep the residual: set all value matrices to zero, and "
    "attention adds nothing.",
    correction="",
    why="The value part of {depth:.0f} random attention layers with skips was set to zero. The residual "
    "after the last layer differs from the first by {change}. The layers do nothing at all, which is also "
    "why this example says little about networks that do something.",
    checks=(
        Check(
            "change",
            "claim",
            "at most",
            1e-13,
            label="change of the residual, relative",
            because="Zeros are added: nothing changes but the last bits of the norm.",
        ),
    ),
    seconds=0.08,
)
def measure(seed: int) -> Measured:
    """Follow a network whose value weights are zero."""
    import torch

    from leadline.claims.collapse._stacks import attention_network, stream
    from leadline.instruments.collapse.measure import collapse

    model = attention_network(seed, depth=DEPTH, width=WIDTH, heads=2, connection="identity")
    with torch.no_grad():
        for block in model.blocks:
            branch = block.attention.branch
            branch.qkv.weight.split(branch.widths)[2].zero_()
    found = collapse(model, stream(seed, tokens=TOKENS, width=WIDTH)[0])
    change = abs(10.0 ** float(found.log10_residual[-1] - found.log10_residual[0]) - 1.0)
    return Measured({"depth": float(DEPTH), "change": change})
