"""Pre-LN: is the Jacobian of every block near the identity, always?

The note says so of every layer and whatever becomes of F and LN. |J - I|_F / sqrt(N) is the change
that a block makes to a random gradient, in the root mean square; near the identity is read as less
than a third. Blocks of 12 layers, 16 tokens, Xavier's init; the branch reads LN(x), whose Jacobian
is 1/s, so the distance falls as the stream grows. Scaled by 1/sqrt(2L) it is small everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture
from leadline.claims.norms._blocks import BLOCKS, DEPTH


@claim(
    "pre-norm-blocks-near-identity",
    group="norms",
    notes=("shortcuts",),
    title="In Pre-LN the Jacobian of every layer is always near the identity",
    formula=r"\frac{\partial x_{l+1}}{\partial x_l} \approx I",
    plain="∂x_{l+1}/∂x_l ≈ I for every l",
    says="In Pre-LN the gradient always has a path whose Jacobian is nearly the identity, even "
    "if the branch or the norm breaks.",
    correction="In the first layers of an unscaled Pre-LN model the branch is as large as the "
    "identity. The later blocks come near it, because the stream has grown and the norm divides "
    "by its size. With updates divided by $\\sqrt{2L}$ all blocks are near it.",
    why="The Jacobian of every block of an untrained 12-layer Pre-LN model was measured. The first "
    "one changes a random gradient by {first:.2f} of its length and stretches its worst direction "
    "{strongest:.1f}-fold; the last one changes it by {last:.2f}. "
    "Divided by $\\sqrt{2L}$ no block changes more than "
    "{scaled:.2f}. A Post-LN block changes {post:.2f}.",
    checks=(
        Check(
            "first", "claim", "at most", 1.0 / 3.0,
            label="distance of the first block to the identity, Pre-LN",
            because="Near the identity: less than a third of a random gradient is changed.",
        ),
        Check(
            "last_over_first", "correction", "at most", 0.7,
            label="distance of the last block over that of the first, Pre-LN",
            because="The stream's mean square grows from about 2 to 11, so 1/s falls to a half.",
        ),
        Check(
            "scaled", "correction", "at most", 1.0 / 3.0,
            label="largest distance of a block, updates / √(2L)",
            because="Near the identity: less than a third of a random gradient is changed.",
        ),
    ),
    source="",
    seconds=0.01,
    needs=(BLOCKS,),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Read the block Jacobians of three designs."""
    found = trials[BLOCKS.name]
    pre, scaled, post = (found[design]["distance"] for design in ("pre", "scaled pre", "post"))
    layers = tuple(float(layer) for layer in range(1, DEPTH + 1))
    return Measured(
        {
            "first": pre[0],
            "last": pre[-1],
            "last_over_first": pre[-1] / pre[0],
            "strongest": found["pre"]["largest"][0],
            "scaled": max(scaled),
            "post": sum(post) / len(post),
        },
        Picture(
            "layer",
            "distance of J to the identity",
            {
                "Pre-LN": (layers, tuple(pre)),
                "Pre-LN, updates / √(2L)": (layers, tuple(scaled)),
                "Post-LN": (layers, tuple(post)),
            },
        ),
    )
