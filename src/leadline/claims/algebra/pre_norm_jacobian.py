"""x' = x + F(LN(x)) has the Jacobian I + F'(LN(x)) LN'(x).

The chain rule, taken as the note writes it, for every write of a small Transformer whose norms have
gains that differ by feature. F' is the branch's Jacobian at the normed stream, LN' the closed form
of `theory.norm_jacobian`, the left side autograd through the whole write.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check


@claim(
    "pre-norm-jacobian",
    group="algebra",
    notes=("shortcuts",),
    title="A Pre-LN layer has the Jacobian I + F' LN'",
    formula=r"\frac{\partial x_{l+1}}{\partial x_l} = I + F'(\mathrm{LN}(x_l)) \, \mathrm{LN}'(x_l)",
    plain="∂x_{l+1}/∂x_l = I + F'(LN(x_l)) LN'(x_l)",
    says="With the norm before the branch, the Jacobian of a layer is a bare identity plus the "
    "branch's Jacobian times the norm's.",
    correction="",
    why="For every write of a small Transformer the Jacobian by automatic differentiation was "
    "compared with the formula, the norm's part in closed form: they differ by {error} of its size. "
    "Without the identity the formula would miss by {bare}.",
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
    for write in seen("pre", seed=seed):
        size = float(np.linalg.norm(write.real))
        added = write.branch @ write.norm
        errors.append(float(np.linalg.norm(np.eye(len(added)) + added - write.real)) / size)
        bare.append(float(np.linalg.norm(added - write.real)) / size)
    return Measured({"error": max(errors), "bare": min(bare)})
