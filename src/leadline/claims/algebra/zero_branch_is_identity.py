"""y = x + F(x) with F = 0 is the identity: nothing is changed, in value and in derivative.

Read as the equation says it, for blocks whose write is x + u: all weights of all branches of a
pre-norm Transformer are set to 0, and the stream is followed through 12 blocks. x + 0 = x is exact
in floating-point arithmetic, so the limit is 0 itself.
"""

from __future__ import annotations

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

DEPTH, LENGTH = 12, 8


@claim(
    "zero-branch-is-identity",
    group="algebra",
    notes=("shortcuts", "textbook", "card"),
    title="A layer x + F(x) whose branch is zero is the identity",
    formula=r"F = 0 \;\Rightarrow\; x_{l+1} = x_l + F(x_l) = x_l",
    plain="F = 0  ⇒  x_{l+1} = x_l",
    says="If the branch of a residual layer gives zero, the layer passes its input on unchanged, "
    "through as many layers as one likes. The identity comes for free.",
    correction="",
    why="All branches of a pre-norm Transformer with 12 blocks were set to zero. What leaves the "
    "last block differs from what enters the first by {moved}, and the Jacobian of all blocks "
    "together differs from the identity matrix by {bent}. Adding zero is exact, even for a computer.",
    checks=(
        Check(
            "moved", "claim", "at most", 0.0,
            label="change of the stream by 12 blocks",
            because="x + 0 = x is exact in floating-point arithmetic.",
        ),
        Check(
            "bent", "claim", "at most", 0.0,
            label="distance of their Jacobian from I",
            because="The derivative of x + 0 is the identity, and products with it are exact.",
        ),
    ),
    seconds=0.2,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """Follow a stream through blocks whose branches are zero."""
    from leadline.claims.algebra._networks import built, emptied, tokens_of, writes_of
    from leadline.instruments.jacobian.measure import jacobian

    model = emptied(built({"depth": DEPTH, "width": 16, "heads": 2}, seed=seed))
    batch = tokens_of(model, length=LENGTH, seed=seed)
    states = writes_of(model, batch).states
    found = jacobian(model, batch, layer=(0, DEPTH), k=1, probes=8)
    return Measured(
        {
            "moved": float((states[-1] - states[0]).abs().max()),
            "bent": float(found.distance[0]),
        }
    )
