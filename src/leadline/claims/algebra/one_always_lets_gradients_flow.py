"""The 1 in 1 + f' ensures that gradients always flow: not where f' = -1.

Both notes say it of the derivative 1 + f' of one layer, and mean every f: one writes "always". That
a flat branch, f' = 0, leaves the gradient alone is right. But f(x) = -x is a branch like any other
and gives 1 + f' = 0: the gradient is 0 exactly. What the 1 does ensure is

    sigma_min(I + F') >= 1 - |F'|

which says something only where |F'| < 1 (attained by F' = -|F'| I). The branch -x is measured with
Leadline's model of known answers, whose MLP writes beta times the token.
"""

from __future__ import annotations

import math

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture

SIZE, DRAWS = 8, 200


@claim(
    "one-always-lets-gradients-flow",
    group="algebra",
    notes=("textbook", "card"),
    title="The 1 in 1 + f' makes sure that gradients always flow",
    formula=r"\frac{\partial (x + f)}{\partial x} = 1 + f' \neq 0",
    plain="1 + f' ≠ 0, whatever f is",
    says="The identity adds a 1 to the derivative, and this 1 ensures that the gradient always "
    "flows and stays significant, even where the derivative of f is about 0.",
    correction="It ensures $\\sigma_{\\min}(I + F') \\ge 1 - \\|F'\\|$, which says something only for "
    "branches with $\\|F'\\| < 1$. A branch that undoes the identity stops the gradient.",
    why="A flat branch leaves the gradient as it is (gain {flat}). But a branch is free to be $f(x) = "
    "-x$: then $1 + f' = 0$, and the gradient that was measured behind such a layer is {stopped} "
    "times the one before it. Branches of norm below 1, random ones and the worst one, never broke the "
    "bound $1 - \\|F'\\|$ (smallest ratio {kept}).",
    checks=(
        Check(
            "flat", "claim", "near", 1.0, within=1e-12,
            label="gain of the gradient where f' = 0",
            because="The derivative of x + constant is 1 exactly; the rest is rounding.",
        ),
        Check(
            "stopped", "claim", "at least", 1e-3,
            label="gain of the gradient where f(x) = -x",
            because="A gradient that flows is at least a thousandth of what came.",
        ),
        Check(
            "kept", "correction", "at least", 1.0 - 1e-9,
            label="smallest singular value over 1 - ‖F'‖",
            because="A theorem with equality for F' = -|F'| I; the rest is rounding.",
        ),
        Check(
            "undone", "correction", "at most", 1e-12,
            label="smallest singular value where F' = -I",
            because="I - I = 0; the rest is rounding.",
        ),
    ),
    seconds=0.2,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """The Jacobian of layers that write 0 and -x, and random branches beside the bound."""
    import torch

    from leadline.claims.algebra._matrices import of_norm, singular
    from leadline.instruments.jacobian.bidiagonal import largest, smallest
    from leadline.numerics.linear.linearised import Linearised
    from leadline.testing.tiny import Linear
    from leadline.theory.residual_products import product_band

    rng = np.random.default_rng([seed, 106])
    x = torch.from_numpy(rng.normal(size=(1, 3, SIZE)))

    def gains(beta: float) -> tuple[float, float]:
        layer = Linearised(Linear(1, alpha=0.0, beta=beta).double(), x)
        return float(largest(layer, 1).values[0, 0]), float(smallest(layer, 1).values[0, 0])

    ratios: list[float] = []
    for size in np.linspace(0.05, 0.95, DRAWS):
        bound = math.exp(product_band([float(size)]).log_lower)
        random = float(singular(np.eye(SIZE) + of_norm(rng, SIZE, float(size)))[-1])
        undoing = float(singular((1.0 - float(size)) * np.eye(SIZE))[-1])
        ratios += [random / bound, undoing / bound]
    slopes = tuple(float(b) for b in np.linspace(-2.0, 1.0, 61))
    return Measured(
        {
            "flat": gains(0.0)[0],
            "stopped": gains(-1.0)[0],
            "kept": min(ratios),
            "undone": gains(-1.0)[1],
        },
        Picture(
            "f'",
            "gain of the gradient",
            {
                "|1 + f'|": (slopes, tuple(abs(1.0 + slope) for slope in slopes)),
                "1 - |f'|, the bound": (
                    slopes,
                    tuple(max(0.0, 1.0 - abs(slope)) for slope in slopes),
                ),
            },
            faint=("1 - |f'|, the bound",),
        ),
    )
