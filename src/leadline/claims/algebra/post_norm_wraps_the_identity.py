"""Post-LN has no clean identity path: the norm stands on it. How much does that take?

With F = 0 only the path itself is left. Under pre-norm its Jacobian is I; under post-norm it is J_LN,
which is not I: the claim. The note goes on that the path is destroyed and the gradient squeezed
layer by layer; with F = 0 that is its reach, over a whole stack. From the second norm on the stream
is on the sphere of the norm, s = 1 (up to eps), and J_LN = I - 11'/d - xx'/d is a projection: it
takes two directions of every token, the mean and the length, once, and leaves d - 2 alone at any
depth. So it is with gains of 1 and no shift, as a norm starts; with other gains a normed stream is not
where s = 1, and J_LN is no projection. (What the branches do to s is another matter.)
"""

from __future__ import annotations

import numpy as np

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check

DEPTH, LENGTH, WIDTH = 12, 4, 16


@claim(
    "post-norm-wraps-the-identity",
    group="algebra",
    notes=("shortcuts",),
    title="Post-LN has no clean identity path for the gradient",
    formula=r"F = 0 \;\Rightarrow\; J_{\mathrm{post}} = J_{\mathrm{LN}} \neq I = J_{\mathrm{pre}}",
    plain="F = 0 ⇒ J_post = J_LN ≠ I = J_pre",
    says="Pre-LN keeps a completely clean identity path for the gradient. Post-LN wraps the "
    "identity into the norm and thereby destroys it, so that gradients are squeezed layer by layer.",
    correction="The norm on the path takes two directions of every token, its mean and its length, "
    "and takes them once while all gains are 1 and all shifts 0, as before training: on a stream that "
    "is normed already its Jacobian is a projection, which leaves all other directions alone at any "
    "depth.",
    why="All branches were set to zero, so that only the path itself is left. Under Pre-LN its "
    "Jacobian over 12 blocks is the identity (distance {pre}); under Post-LN it is not (distance "
    "{post}): {lost:.0f} directions of every token are gone. But that is all: behind the first norm the "
    "other directions pass 22 norms with a gain of {through}.",
    checks=(
        Check(
            "pre", "claim", "at most", 0.0,
            label="‖J - I‖ of Pre-LN, F = 0",
            because="The derivative of x + 0 is the identity exactly.",
        ),
        Check(
            "post", "claim", "at least", 0.5,
            label="‖J - I‖ of Post-LN, F = 0",
            because="A path that is not the identity is away from it by a good part of 1.",
        ),
        Check(
            "through", "reach", "at most", 0.5,
            label="largest gain behind the first block, Post-LN, F = 0",
            because="Squeezed layer by layer means that after 22 norms less than half is left.",
        ),
        Check(
            "lost", "correction", "near", 2.0, within=1e-6,
            label="directions of a token that are lost",
            because="A theorem: 1 and x span the kernel of the norm's Jacobian.",
        ),
        Check(
            "middle", "correction", "near", 1.0, within=1e-3,
            label="smallest gain of the other directions",
            because="A projection has the gain 1; every norm's eps of 1e-5 takes less than 1e-5.",
        ),
    ),
    seconds=0.2,
)  # fmt: skip
def measure(seed: int) -> Measured:
    """The Jacobian of stacks whose branches are zero."""
    from leadline.claims.algebra._matrices import norm, singular
    from leadline.claims.algebra._networks import (
        built,
        emptied,
        matrix_of,
        stretches_of,
        tokens_of,
    )

    fields = {"depth": DEPTH, "width": WIDTH, "heads": 2}
    far: dict[str, float] = {}
    behind = np.array([])
    for placement in ("pre", "post"):
        model = emptied(built({**fields, "placement": placement}, seed=seed))
        stretches = stretches_of(model, tokens_of(model, length=LENGTH, seed=seed))
        whole = matrix_of(*stretches.function(0, DEPTH))
        far[placement] = norm(whole - np.eye(len(whole)))
        behind = singular(matrix_of(*stretches.function(1, DEPTH)))
    kept = behind > 1e-3
    return Measured(
        {
            **far,
            "through": float(behind[0]),
            "lost": float(np.sum(~kept)) / LENGTH,
            "middle": float(behind[kept][-1]),
        }
    )
