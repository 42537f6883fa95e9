"""dL/dx = dL/d(x + F) = 1 + dL/dF F': the loss's own gradient is missing before the 1.

An equation for every loss L and branch F, so any draw decides. With y = x + F(x) the chain rule is

    dL/dx = dL/dy (1 + F'(x))

and dL/dF = dL/dy: the formula of the note replaces dL/dy by 1 in the first term, so it is right only
where dL/dy = 1, and its first equation only where F' = 0. Measured on L = c y with F = sin, c and x
drawn, by autograd; the corrected one also for every block of a Transformer, g_l = J' g_{l+1}.
"""

from __future__ import annotations

import math

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

DRAWS, DEPTH, LENGTH = 50, 3, 4


@claim(
    "loss-gradient-formula",
    group="algebra",
    notes=("summary",),
    title="The gradient of the loss is 1 + dL/dF · F'",
    formula=r"\frac{dL}{dx} = \frac{dL}{d(x + F(x))} = 1 + \frac{dL}{dF(x)} \cdot F'(x)",
    plain="dL/dx = dL/d(x + F) = 1 + dL/dF · F'",
    says="The gradient of the loss with respect to x equals that with respect to x + F(x), and is 1 "
    "plus the branch's share.",
    correction="$\\frac{dL}{dx} = \\frac{dL}{dy} (1 + F'(x))$ with $y = x + F(x)$: the gradient of the "
    "loss multiplies the 1 too. It equals $\\frac{dL}{dy}$ only where $F' = 0$, and the noted sum only "
    "where $\\frac{dL}{dy} = 1$.",
    why="For a loss $L = c\\,y$ with random $c$ and a branch $\\sin x$, the gradient was computed by "
    "automatic differentiation. The noted formula misses it by {noted} times its size on average, and "
    "calling it the gradient with respect to $x + F(x)$ misses by {equal}. With the loss's gradient in "
    "front of the bracket nothing is missed ({right}).",
    checks=(
        Check(
            "noted", "claim", "at most", 1e-9,
            label="miss of 1 + dL/dF · F'",
            because="An equation holds to rounding or not at all.",
            log=True,
        ),
        Check(
            "equal", "claim", "at most", 1e-9,
            label="miss of dL/dx = dL/d(x + F)",
            because="An equation holds to rounding or not at all.",
            log=True,
        ),
        Check(
            "right", "correction", "at most", 1e-12,
            label="miss of dL/dy (1 + F')",
            because="The chain rule; the rest is rounding.",
            log=True,
        ),
        Check(
            "blocks", "correction", "at most", 1e-11,
            label="miss of g_l = J' g_{l+1} in a Transformer",
            because="The chain rule for matrices of 32 rows; the rest is rounding.",
            log=True,
        ),
    ),
    seconds=0.2,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """The noted and the right formula beside autograd."""
    import torch

    from leadline.claims.algebra._networks import built, matrix_of, stretches_of, tokens_of

    rng = np.random.default_rng([seed, 108])
    noted: list[float] = []
    equal: list[float] = []
    right: list[float] = []
    for _ in range(DRAWS):
        c, at = float(rng.uniform(2.0, 4.0)), float(rng.uniform(-1.0, 1.0))
        x = torch.tensor(at, dtype=torch.float64, requires_grad=True)
        y = x + torch.sin(x)
        by_x, by_y = (one.item() for one in torch.autograd.grad(c * y, (x, y)))
        slope = math.cos(at)
        noted.append(abs(1.0 + by_y * slope - by_x) / abs(by_x))
        equal.append(abs(by_y - by_x) / abs(by_x))
        right.append(abs(by_y * (1.0 + slope) - by_x) / abs(by_x))
    model = built({"depth": DEPTH, "width": 8, "heads": 2}, seed=seed)
    stretches = stretches_of(model, tokens_of(model, length=LENGTH, seed=seed))
    last = rng.normal(size=LENGTH * 8)
    misses: list[float] = []
    gradient = last
    for layer in range(DEPTH, 0, -1):
        gradient = matrix_of(*stretches.function(layer - 1, layer)).T @ gradient
        through, x = stretches.function(layer - 1, DEPTH)
        leaf = x.clone().requires_grad_()
        loss = (torch.from_numpy(last) * through(leaf).flatten()).sum()
        real = torch.autograd.grad(loss, leaf)[0].flatten().numpy()
        misses.append(float(np.linalg.norm(gradient - real) / np.linalg.norm(real)))
    return Measured(
        {
            "noted": float(np.mean(noted)),
            "equal": float(np.mean(equal)),
            "right": max(right),
            "blocks": max(misses),
        }
    )
