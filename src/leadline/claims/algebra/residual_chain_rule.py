"""dx_{l+1}/dx_l = 1 + F', and the gradient is the product of these factors.

The notes write the derivative with a 1, as of numbers, and the product as prod_{i=l}^{L-1} after
dL/dx_L. For numbers that is the chain rule (the claim, also without the shortcut, where the
factors are F' alone), and for a layer of vectors the factor is I + F' (also the claim). One note then
speaks of a chain of matrices: there the order counts (its reach). With the gradient as a row,

    dL/dx_l = dL/dx_L J_{L-1} J_{L-2} ... J_l,        J_i = I + F_i'

the factor of the LAST layer stands first; read in the written order, i = l first, it is wrong.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

DEPTH, LENGTH, SCALARS = 3, 4, 40
SIZES = {"depth": DEPTH, "width": 8, "heads": 2}
ROUNDING = 1e-11


@claim(
    "residual-chain-rule",
    group="algebra",
    notes=("shortcuts", "textbook", "card"),
    title="The gradient is a product of factors 1 + F'",
    formula=r"\frac{\partial L}{\partial x_l} = \frac{\partial L}{\partial x_L} "
    r"\prod_{i=l}^{L-1} \left(1 + F_i'(x_i)\right)",
    plain="∂L/∂x_l = ∂L/∂x_L · ∏ (1 + F_i')",
    says="A residual layer has the derivative 1 + F', so the gradient at a layer is that at the "
    "end times the product of all 1 + F' between them; without the shortcut it is the product of "
    "the F'.",
    correction="For vectors the factors are matrices $I + F_i'$ that do not commute. With the "
    "gradient as a row, the factor of the last layer comes first: $g_l = g_L (I + F_{L-1}') \\cdots "
    "(I + F_l')$.",
    why="For numbers the formula gives the gradient of automatic differentiation to {scalar}, and "
    "without shortcut to {plain}. The writes of a Transformer have the Jacobian $I + F'$ to {factor}. "
    "Multiplied in the right order, last layer first, these matrices give the gradient to {ordered}; "
    "multiplied in the written order, first layer first, they miss it by {written} of its length.",
    checks=(
        Check(
            "scalar", "claim", "at most", ROUNDING,
            label="error for numbers, with shortcut",
            because="The chain rule; 40 factors round by less than a hundred eps each.",
            log=True,
        ),
        Check(
            "plain", "claim", "at most", ROUNDING,
            label="error for numbers, without",
            because="The chain rule; 40 factors round by less than a hundred eps each.",
            log=True,
        ),
        Check(
            "factor", "claim", "at most", ROUNDING,
            label="distance of a write's Jacobian from I + F'",
            because="An identity; what is left is the rounding of two routes to the same matrix.",
            log=True,
        ),
        Check(
            "written", "reach", "at most", ROUNDING,
            label="error for matrices, order as written",
            because="The formula is an equation: for matrices too it holds to rounding or not at all.",
            log=True,
        ),
        Check(
            "ordered", "correction", "at most", ROUNDING,
            label="error for matrices, last layer first",
            because="The chain rule; six matrices of 32 rows round by less than 1e5 eps.",
            log=True,
        ),
    ),
    seconds=0.1,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Autograd through a chain of numbers and through a Transformer, beside the products."""
    import torch
    from torch import Tensor, nn

    from leadline.claims.algebra._networks import (
        built,
        matrix_of,
        stretches_of,
        tokens_of,
        writes_of,
    )

    rng = np.random.default_rng([seed, 102])
    amplitude, offset = 0.5 * rng.normal(size=(2, SCALARS))

    def scalar(skip: bool) -> float:
        x = start = torch.tensor(float(rng.normal()), dtype=torch.float64, requires_grad=True)
        product = 1.0
        for a, b in zip(amplitude, offset, strict=True):
            at = x.item()
            product *= skip + float(a) * float(np.cos(at + b))
            x = skip * x + float(a) * torch.sin(x + float(b))
        (gradient,) = torch.autograd.grad(torch.exp(x), start)
        return abs(gradient.item() / (product * torch.exp(x).item()) - 1.0)

    model = built(SIZES, seed=seed)
    batch = tokens_of(model, length=LENGTH, seed=seed)
    stretches, seen = stretches_of(model, batch), writes_of(model, batch)
    whole: list[np.ndarray] = []
    misses: list[float] = []
    for number, (sublayer, x, run) in enumerate(
        zip(model.sublayers(), seen.states, seen.runs, strict=False)
    ):
        write, at = stretches.sublayer(1 + number // 2, 1 + number % 2)

        assert sublayer.enter is not None

        def branch(
            v: Tensor, enter: nn.Module = sublayer.enter, inner: nn.Module = sublayer.branch,
            r: object = run,
        ) -> Tensor:  # fmt: skip
            return inner(enter(v), r)

        added = np.eye(x[0].numel()) + matrix_of(branch, x)
        whole.append(added)
        misses.append(float(np.linalg.norm(matrix_of(write, at) - added)))
    through, x = stretches.function(0, DEPTH)
    leaf = x.clone().requires_grad_()
    weights = torch.from_numpy(rng.normal(size=tuple(x.shape)))
    (real,) = torch.autograd.grad((weights * through(leaf)).sum(), leaf)
    gradient, last = real.flatten().numpy(), weights.flatten().numpy()
    ordered = written = last
    for factor in reversed(whole):
        ordered = ordered @ factor
    for factor in whole:
        written = written @ factor
    size = float(np.linalg.norm(gradient))
    return Measured(
        {
            "scalar": scalar(True),
            "plain": scalar(False),
            "factor": max(misses),
            "ordered": float(np.linalg.norm(ordered - gradient)) / size,
            "written": float(np.linalg.norm(written - gradient)) / size,
        }
    )
