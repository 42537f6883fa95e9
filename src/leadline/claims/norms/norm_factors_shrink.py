"""If every norm's Jacobian is below 1, does the gradient shrink layer by layer?

The sentence is a conditional about products of J_LN (I + F'). Its counterexample is in closed form:
F(x) = x. Then x + F(x) = 2 x, LayerNorm's input has standard deviation 2, |J_LN| = 1/2 in every
layer, and I + F' = 2 I: the product of both keeps every direction but 1 and xh exactly as it is, at
any depth. What follows from |J_LN| < 1 is only |J_LN (I + F')| <= |J_LN| |I + F'|.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

WIDTH, DEPTH = 32, 100
SHARE = (0.0, 0.5, 1.0, 1.5)
"""F(x) = c x for these c."""


@claim(
    "norm-factors-shrink",
    group="norms",
    notes=("shortcuts",),
    title="If the norms' Jacobians are below 1, the gradient of Post-LN shrinks layer by layer",
    formula=r"\|J_{LN}\| < 1 \Rightarrow \prod_{l} J_{LN} (I + F'_l) \to 0",
    plain="‖J_LN‖ < 1 ⇒ ∏ J_LN (I + F') → 0",
    says="In Post-LN each layer multiplies the gradient by the Jacobian of a norm; if that has a "
    "norm below 1, the gradient gets smaller layer by layer.",
    correction="Only $\\|J_{LN} (I + F')\\| \\leq \\|J_{LN}\\| \\, \\|I + F'\\|$ follows. The norm "
    "divides by the size of $x + F(x)$, and $I + F'$ makes the gradient larger about as much.",
    why="Take $F(x) = x$. Then the norm reads $2x$, its Jacobian has norm {factor:.2f} in every "
    "layer, and $I + F'$ is twice the identity. After 100 layers a random gradient still has "
    "{left:.2f} of its length: only the two directions that every LayerNorm removes are gone. "
    "The factor of the norm and that of the sum cancel exactly.",
    checks=(
        Check(
            "factor", "claim", "at most", 1.0,
            label="largest norm of LayerNorm's Jacobian in any layer, F(x) = x",
            because="The note's own condition, which has to be met.",
        ),
        Check(
            "left", "claim", "at most", 0.5,
            label="length left of a random gradient after 100 layers, F(x) = x",
            because="Shrinking layer by layer leaves less than half after a hundred layers.",
        ),
        Check(
            "bound", "correction", "at most", 1.0 + 1e-10,
            label="worst ratio of the norm of a block to the product of the norms",
            because="Norms are submultiplicative; room for rounding.",
        ),
    ),
    source="",
    seconds=0.07,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Pull a gradient back through 100 layers LN(x + c x)."""
    from leadline.theory.norm_jacobian import layer_norm_jacobian, normed

    rng = np.random.default_rng([seed, 45])
    start = normed(rng.standard_normal(WIDTH), norm="layernorm", eps=1e-5)[0]
    gradient = rng.standard_normal(WIDTH)
    lines: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {}
    factors: list[float] = []
    bounds: list[float] = []
    left = 0.0
    for _ in range(DEPTH):
        branch = 0.2 * rng.standard_normal((WIDTH, WIDTH))
        added = np.eye(WIDTH) + branch
        norm = layer_norm_jacobian(added @ start)
        sizes = [float(np.linalg.norm(one, 2)) for one in (norm @ added, norm, added)]
        bounds.append(sizes[0] / (sizes[1] * sizes[2]))
    for share in SHARE:
        x, pulled, lengths, blocks = start, gradient, [1.0], []
        for _ in range(DEPTH):
            total = (1.0 + share) * x
            norm = layer_norm_jacobian(total)
            block = norm @ ((1.0 + share) * np.eye(WIDTH))
            size = float(np.linalg.norm(norm, 2))
            if share == 1.0:
                factors.append(size)
            x = normed(total, norm="layernorm", eps=1e-5)[0]
            blocks.append(block)
        for block in reversed(blocks):
            pulled = block.T @ pulled
            lengths.append(float(np.linalg.norm(pulled) / np.linalg.norm(gradient)))
        lines[f"F(x) = {share:g} x"] = (tuple(map(float, range(DEPTH + 1))), tuple(lengths))
        if share == 1.0:
            left = lengths[-1]
    return Measured(
        {"factor": max(factors), "left": left, "bound": max(bounds)},
        Picture("layers", "length of the gradient", lines, y_log=True),
    )
