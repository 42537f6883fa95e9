"""Is it the norms on the path that spoil the gradient of Post-LN?

The note's conclusion: Post-LN wraps the identity path in LayerNorm, and multiplying by the norms'
Jacobians compresses the gradient; the path would be clean without them. The product of a Post-LN
stack, J = D_l (I + F'_l) for every addition, is taken as it is and without the D_l, each I + F' at
the point where the real pass has it. Sizes are log10 of |P|_F / sqrt(N), the growth of a random
gradient; order one is read as a factor of ten up or down.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.analysis.claim import Check
from leadline.claims._entry import Measured, claim
from leadline.claims.norms._blocks import BLOCKS


@claim(
    "norms-break-the-path",
    group="norms",
    notes=("shortcuts",),
    title="What spoils the gradient of Post-LN are the norms on the identity path",
    formula=r"\prod J_{LN} (I + F') \ll \prod (I + F') = \mathcal{O}(1)",
    plain="∏ J_LN (I + F') ≪ ∏ (I + F') = O(1)",
    says="Post-LN wraps the identity path in LayerNorm and thereby breaks it: the product of all "
    "norms compresses the gradient, while the product without them would be of order one.",
    correction="Before training the norms keep the gradient of Post-LN of order one: they divide "
    "away what skips and branches have added. Without them the same product would explode.",
    why="The product of the Jacobians of 24 Post-LN layers multiplies a random gradient by 10 to "
    "the power {with_norms:.2f}: order one. Leaving out the Jacobians of the norms, and nothing "
    "else, makes it 10 to the power {without_norms:.1f}. Each norm does shrink, all together by "
    "10 to the power {shrink:.1f}, but that is just what $I + F'$ has added, since the branch is "
    "as large as the stream.",
    checks=(
        Check(
            "without_norms", "claim", "near", 0.0, within=1.0,
            label="log₁₀ of the product of 24 layers without the norms' Jacobians",
            because="A clean path is of order one: within a factor of ten.",
        ),
        Check(
            "with_norms", "correction", "near", 0.0, within=1.5,
            label="log₁₀ of the product with them",
            because="Kept to a factor of thirty, beside five orders of magnitude without norms; "
            "draws scatter by 0.3.",
        ),
        Check(
            "taken", "correction", "at least", 2.0,
            label="log₁₀ of what the norms take away",
            because="What they prevent is at least a hundredfold growth.",
        ),
    ),
    source="",
    seconds=0.01,
    needs=(BLOCKS,),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Read the product with and without the norms."""
    found = trials[BLOCKS.name]["norms apart"]
    return Measured(
        {
            "with_norms": found["with"],
            "without_norms": found["without"],
            "shrink": found["shrink"],
            "taken": found["without"] - found["with"],
        }
    )
