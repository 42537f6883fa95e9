"""Multiplying from the left mixes tokens; multiplying from the right acts on each token alone.

Read as two identities: in X W a token's row depends on that token only, in P X on all tokens that its
row of P gives weight to.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

TOKENS, WIDTH = 6, 8


@claim(
    "left-mixes-right-does-not",
    group="collapse",
    notes=("deep-dive",),
    title="Patterns from the left mix tokens, weights from the right act on each alone",
    formula=r"(X W)_i = x_i W, \quad (P X)_i = \sum_j P_{ij} x_j",
    plain="(XW)_i = x_i W, (PX)_i = Σ_j P_ij x_j",
    says="A path does two things: from the left it averages over tokens and lets them interact; from "
    "the right it transforms the features of every token by itself.",
    correction="",
    why="One token was changed and the others were watched. Through the weights of a head none of the "
    "others moved ({right}). Through its pattern all of them did, the least by {left:.3f} of the average, "
    "because softmax gives no token a weight of zero.",
    checks=(
        Check(
            "right",
            "claim",
            "at most",
            0.0,
            label="largest change of another token through the weights",
            because="A row of X W is computed from the same row of X: nothing changes at all.",
        ),
        Check(
            "left",
            "claim",
            "at least",
            1e-6,
            label="least change of another token through the pattern",
            because="Weights of a softmax are positive; these logits are of order one.",
            log=True,
        ),
    ),
    seconds=0.05,
)
def measure(seed: int) -> Measured:
    """Move one token through the weights and through the pattern of one head."""
    import numpy as np

    from leadline.claims.collapse._components import forward, heads_of, path_network
    from leadline.claims.collapse._stacks import stream

    model = path_network(seed, depth=1, width=WIDTH, heads=1, connection="none")
    layers = heads_of(model, WIDTH, 1)
    x = stream(seed, tokens=TOKENS, width=WIDTH)[0].numpy()
    _, patterns = forward(x, layers, skip=False)
    moved = x.copy()
    moved[0] += 1.0
    others = slice(1, None)
    weights = layers[0][0][2]
    right = np.abs(moved[others] @ weights - x[others] @ weights).max()
    whole = np.abs(moved @ weights - x @ weights)[others].max()
    left = np.abs(patterns[0][0] @ moved - patterns[0][0] @ x)[others].sum(1)
    return Measured({"right": float(max(right, whole)), "left": float(left.min() / left.mean())})
