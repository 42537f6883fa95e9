"""The residual path gives the gradient dL/dx = 1 in the simple case.

The simple case of the notes is a branch that does nothing, F' = 0, and a loss whose gradient at the
output is 1: there the claim is measured, through many layers. A reader takes the 1 for every loss
(its reach). Right is dL/dx = dL/dy where F' = 0: what comes is handed on as it is, and it is the
derivative of the OUTPUT, dy/dx, that is 1.
"""

from __future__ import annotations

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

DEPTH, LENGTH = 12, 4


@claim(
    "gradient-is-one",
    group="algebra",
    notes=("summary", "card"),
    title="In the simple case the residual path gives a gradient of 1",
    formula=r"\frac{dL}{dx} = 1",
    plain="dL/dx = 1 where F' = 0",
    says="Where the branch's derivative is about zero the gradient is 1, so that it cannot fade.",
    correction="Where $F' = 0$ the derivative of the output is the identity and the gradient is handed "
    "on unchanged: $\\frac{dL}{dx} = \\frac{dL}{dy}$. It is 1 only if the loss's own gradient is 1.",
    why="Twelve blocks with branches of zero hand on a gradient of 1 as {one}. A gradient that came as "
    "something else stays that: of a random one the entries at the input differ from 1 by {other} on "
    "average, and from the gradient at the output by {same}.",
    checks=(
        Check(
            "one", "claim", "near", 1.0, within=1e-12,
            label="gradient at the input, 1 at the output",
            because="The derivative of x + 0 is the identity exactly.",
        ),
        Check(
            "other", "reach", "at most", 0.1,
            label="mean distance from 1, another loss",
            because="A gradient that is 1 is within a tenth of it.",
        ),
        Check(
            "same", "correction", "at most", 0.0,
            label="change of the gradient by 12 blocks",
            because="The derivative of x + 0 is the identity exactly.",
        ),
    ),
    seconds=0.1,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Gradients through blocks whose branches are zero."""
    import torch

    from leadline.claims.algebra._networks import built, emptied, stretches_of, tokens_of
    from leadline.numerics.linear.linearised import Linearised

    rng = np.random.default_rng([seed, 109])
    model = emptied(built({"depth": DEPTH, "width": 8, "heads": 2}, seed=seed))
    stretches = stretches_of(model, tokens_of(model, length=LENGTH, seed=seed))
    stack = Linearised(*stretches.function(0, DEPTH))
    ones = torch.ones(1, 1, LENGTH, 8, dtype=torch.float64)
    random = torch.from_numpy(rng.normal(size=(1, 1, LENGTH, 8)))
    arrived = stack.adjoint(random)
    worst = stack.adjoint(ones).flatten()
    return Measured(
        {
            "one": float(worst[(worst - 1.0).abs().argmax()]),
            "other": float((arrived - 1.0).abs().mean()),
            "same": float((arrived - random).abs().max()),
        }
    )
