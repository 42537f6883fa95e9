"""The feed-forward network is the same MLP at every position: s(X W_1 + b_1) W_2 + b_2.

Two statements: the formula, and that nothing passes between positions. Leadline's MLP branch is
set against the formula in numpy, with ReLU and with the tanh form of GELU that GPT-2 uses; tokens
in another order must give the same outputs in that order; changing one token must leave the others
as they are.
"""

from __future__ import annotations

import math

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@claim(
    "ffn-position-wise",
    group="attention",
    notes=("textbook", "deep-dive"),
    title="The feed-forward network applies one MLP to every position by itself",
    formula=r"\mathrm{FFN}(X) = \sigma(X W_1 + b_1) W_2 + b_2",
    plain="FFN(X) = σ(X W₁ + b₁) W₂ + b₂",
    says="All positions are transformed by the same MLP, which is why the network is called "
    "position-wise.",
    correction="",
    why="The MLP of a model was compared with the formula for ReLU and for GPT-2's GELU: they differ "
    "by {formula_error}. Tokens in another order give the same outputs in that order "
    "({order_error}), and changing one token leaves the others exactly as they were: the change is "
    "{change_elsewhere:.0f}.",
    checks=(
        Check(
            "formula_error",
            "claim",
            "at most",
            1e-13,
            label="difference from the formula",
            because="An identity; sums of 64 float64 products of size one.",
            log=True,
        ),
        Check(
            "order_error",
            "claim",
            "at most",
            1e-14,
            label="difference after putting tokens in another order",
            because="The same sums for every token; a kernel may add them in another order.",
            log=True,
        ),
        Check(
            "change_elsewhere",
            "claim",
            "at most",
            0.0,
            label="change of other tokens when one is changed",
            because="Nothing passes between positions: an exact zero.",
        ),
    ),
    source="Vaswani et al. 2017, arXiv 1706.03762, section 3.3",
    seconds=0.01,
)
def measure(seed: int) -> Measured:
    """Formula, order and one changed token."""
    import torch

    from leadline.claims.attention._models import branch_of
    from leadline.parts import Transformer
    from leadline.parts.branches import Run

    generator = torch.Generator().manual_seed(4500 + seed)
    formula, order, elsewhere = [], [], []
    for name, activation in (("relu", lambda h: np.maximum(h, 0)), ("gelu_tanh", _gelu_tanh)):
        model = Transformer(
            depth=1, width=16, heads=2, vocabulary=4, context=9, mlp=name, init="xavier", seed=seed
        )
        branch = branch_of(model, "mlp")
        with torch.no_grad():
            for layer in (branch.up, branch.down):
                layer.bias.copy_(torch.randn(layer.bias.shape, generator=generator))
            x = torch.randn(1, 9, 16, generator=generator, dtype=torch.float64)
            out = branch(x, Run())[0]
            turned = torch.randperm(9, generator=generator)
            other = branch(x[:, turned], Run())[0]
            moved = x.clone()
            moved[0, 4] += 1
            after = branch(moved, Run())[0]
        up, down = branch.up, branch.down
        w1, b1, w2, b2 = (
            part.detach().numpy() for part in (up.weight, up.bias, down.weight, down.bias)
        )
        by_hand = activation(x[0].numpy() @ w1.T + b1) @ w2.T + b2
        formula.append(float(np.abs(out.numpy() - by_hand).max()))
        order.append(float((other - out[turned]).abs().max()))
        rest = torch.arange(9) != 4
        elsewhere.append(float((after - out)[rest].abs().max()))
    return Measured(
        {
            "formula_error": max(formula),
            "order_error": max(order),
            "change_elsewhere": max(elsewhere),
        }
    )
