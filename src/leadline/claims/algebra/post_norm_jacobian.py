"""x' = LN(x + F(x)) has the Jacobian J_LN (I + F').

The chain rule, taken as the note writes it, for every write of a small Transformer whose norms have
gains that differ by feature: J_LN is the closed form of `theory.norm_jacobian` at x + F(x), F' the
branch's Jacobian at x, the left side autograd through the whole write.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check


@claim(
    "post-norm-jacobian",
    group="algebra",
    notes=("shortcuts",),
    title="A Post-LN layer has the Jacobian J_LN (I + F')",
    formula=r"\frac{\partial x_{l+1}}{\partial x_l} = J_{\mathrm{LN}} \left(I + F'(x_l)\right)",
    plain="∂x_{l+1}/∂x_l = J_LN (I + F'(x_l))",
    says="With the norm after the addition, the Jacobian of a layer is that of the norm times I + "
    "F': every layer multiplies the gradient by a Jacobian of LayerNorm.",
    correction="",
    why="For every write of a small Transformer the Jacobian by automatic differentiation was "
    "compared with the formula, the norm's part in closed form at the sum: they differ by {error} of "
    "its size. Without the norm's factor the formula would miss by {bare}.",
    checks=(
        Check(
            "error", "claim", "at most", 1e-11,
            label="formula against automatic differentiation",
            because="An identity between matrices of 32 rows; the rest is rounding.",
            log=True,
        ),
    ),
    seconds=0.2,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Autograd beside the formula, write by write."""
    from leadline.claims.algebra._norm_writes import seen

    errors: list[float] = []
    bare: list[float] = []
    for write in seen("post", seed=seed):
        size = float(np.linalg.norm(write.real))
        added = np.eye(len(write.branch)) + write.branch
        errors.append(float(np.linalg.norm(write.norm @ added - write.real)) / size)
        bare.append(float(np.linalg.norm(added - write.real)) / size)
    return Measured({"error": max(errors), "bare": min(bare)})
