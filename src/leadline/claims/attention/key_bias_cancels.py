"""The bias of the keys drops out of the softmax.

    softmax((X W_Q + 1 b_Q')(X W_K + 1 b_K')') = softmax(X W_QK X' + 1 b_Q' W_K' X')

The terms with b_K are the same for all keys of a row, and softmax does not see a constant. The
note writes it for plain products, which is the claim. Rotary positions turn each key by its own
angle, b_K with it, so nothing cancels there: the reach. Heads come from `numerics.attacked_heads`
once with b_K and once with b_K = 0, the formula in numpy beside them.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check


@claim(
    "key-bias-cancels",
    group="attention",
    notes=("deep-dive",),
    title="The bias of the keys does not change attention",
    formula=r"\mathrm{softmax}\left((X W_Q + \mathbf{1} b_Q^\top)(X W_K + \mathbf{1} b_K^\top)^\top"
    r"\right) = \mathrm{softmax}\left(X W_{QK} X^\top + \mathbf{1} b_Q^\top W_K^\top X^\top\right)",
    plain="softmax((X W_Q + 1 b_Q')(X W_K + 1 b_K')') = softmax(X W_QK X' + 1 b_Q' W_K' X')",
    says="The attention matrix with biases of queries and keys equals one in which only the bias of "
    "the queries is left.",
    correction="So it is without rotary positions. With them the bias of the keys is turned with "
    "each key and does change attention.",
    why="Both sides were computed for random heads: they differ by {formula_error}. The bias of the "
    "keys adds the same number to all logits of a row, and softmax does not see it. With rotary "
    "positions taking the bias away changes weights by up to {change_rotary}.",
    checks=(
        Check(
            "formula_error",
            "claim",
            "at most",
            1e-12,
            label="difference of the two sides",
            because="An identity; logits up to about 100 in float64, so weights are right to 1e-14.",
            log=True,
        ),
        Check(
            "change_plain",
            "claim",
            "at most",
            1e-12,
            label="change of the weights when the key bias is taken away",
            because="The same identity on heads of the attack, float64.",
            log=True,
        ),
        Check(
            "change_rotary",
            "reach",
            "at most",
            1e-12,
            label="the same change with rotary positions",
            because="The same limit: the sentence says that nothing changes.",
            log=True,
        ),
        Check(
            "changed_by_rotary",
            "correction",
            "at least",
            1e-3,
            label="that change, which should be visible",
            because="Weights are of size one; a thousandth is far above rounding.",
            log=True,
        ),
    ),
    seconds=0.01,
)
def measure(seed: int) -> Measured:
    """The formula in numpy; then heads with and without the bias of the keys."""
    import torch

    from leadline.claims.attention._drawn import softmax
    from leadline.instruments.attacks.heads import KINDS, Heads

    rng = np.random.default_rng([seed, 4310])
    errors = []
    for _ in range(20):
        x, w_q, w_k = rng.standard_normal((8, 12)), *rng.standard_normal((2, 12, 4))
        b_q, b_k = rng.standard_normal((2, 4))
        whole = softmax((x @ w_q + b_q) @ (x @ w_k + b_k).T / 2)
        short = softmax((x @ (w_q @ w_k.T) @ x.T + np.ones((8, 1)) * (b_q @ w_k.T @ x.T)) / 2)
        errors.append(float(np.abs(whole - short).max()))
    changes = []
    for kind in ("open", "open-rotary"):
        heads = Heads(KINDS[kind], 50, 8, generator=torch.Generator().manual_seed(4311 + seed))
        before = heads.attention()[0].detach()
        heads.sizes["key_bias"] = torch.zeros_like(heads.sizes["key_bias"])
        changes.append(float((heads.attention()[0].detach() - before).abs().max()))
    return Measured(
        {
            "formula_error": max(errors),
            "change_plain": changes[0],
            "change_rotary": changes[1],
            "changed_by_rotary": changes[1],
        }
    )
