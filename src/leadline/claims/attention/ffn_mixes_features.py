"""The MLP makes mixed features of higher order, which the activation brings.

A mixed feature is read as an interaction: f(x + a + b) - f(x + a) - f(x + b) + f(x), which is zero
for every affine map, whatever a and b. Measured for Leadline's MLP with ReLU (the note's example)
and GELU, along two different coordinates, and with the activation taken out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

if TYPE_CHECKING:
    from torch import Tensor


@claim(
    "ffn-mixes-features",
    group="attention",
    notes=("deep-dive",),
    title="The feed-forward network adds mixed features of higher order",
    formula=r"f(x + a + b) - f(x + a) - f(x + b) + f(x) \neq 0",
    plain="f(x + a + b) − f(x + a) − f(x + b) + f(x) ≠ 0",
    says="The MLP turns the directions that attention gives into mixed features of higher order and "
    "completes the non-linear power of the network.",
    correction="",
    why="Two coordinates of a token were changed, alone and together. With ReLU the effect of both "
    "differs from the sum of the two by {interaction_relu:.2f} of it, with GELU by "
    "{interaction_gelu:.2f}. Without the activation two matrices are one matrix, and the difference "
    "is {interaction_linear}.",
    checks=(
        Check(
            "interaction_relu",
            "claim",
            "at least",
            0.01,
            label="interaction of two features, ReLU",
            because="Zero for every linear map; one percent is far above rounding, 1e-15.",
            log=True,
        ),
        Check(
            "interaction_gelu",
            "claim",
            "at least",
            0.01,
            label="interaction of two features, GELU",
            because="Zero for every linear map; one percent is far above rounding, 1e-15.",
            log=True,
        ),
        Check(
            "interaction_linear",
            "claim",
            "at most",
            1e-13,
            label="the same without the activation",
            because="An affine map has none: rounding of sums of 64 float64 products.",
            log=True,
        ),
    ),
    seconds=0.02,
)
def measure(seed: int) -> Measured:
    """The interaction of two coordinates, over the effect of both."""
    import torch

    from leadline.claims.attention._models import branch_of
    from leadline.parts import Transformer
    from leadline.parts.branches import Run

    generator = torch.Generator().manual_seed(4510 + seed)
    x = torch.randn(1, 32, 16, generator=generator, dtype=torch.float64)
    step = torch.zeros(2, 16, dtype=torch.float64)
    step[0, 3] = step[1, 8] = 1.0
    found: dict[str, float] = {}
    with torch.no_grad():
        for name in ("relu", "gelu", "linear"):
            model = Transformer(
                depth=1,
                width=16,
                heads=2,
                vocabulary=4,
                context=32,
                mlp="gelu" if name == "linear" else name,
                init="xavier",
                seed=seed,
            )
            branch = branch_of(model, "mlp")

            def f(at: Tensor, branch: Any = branch, name: str = name) -> Tensor:
                return branch.down(branch.up(at)) if name == "linear" else branch(at, Run())

            both = f(x + step[0] + step[1]) - f(x)
            mixed = both - (f(x + step[0]) - f(x)) - (f(x + step[1]) - f(x))
            found[f"interaction_{name}"] = float(mixed.norm() / both.norm())
    return Measured(found)
