"""Is it the norms on the path that spoil the gradient of Post-LN?

The note's conclusion: Post-LN wraps the identity path in LayerNorm, and multiplying by the norms'
Jacobians compresses the gradient; the path would be clean without them. The product of a Post-LN
stack, J = D_l (I + F'_l) for every addition, is taken as it is and without the D_l, each I + F' at
the point where the real pass has it. Sizes are log10 of |P|_F / sqrt(N), the growth of a random
gradient; order one is read as a factor of ten up or down.

The note assumes small F'. "claim": branches divided by sqrt(2 L). There the product without norms
is of order one, but the norms do not compress it: for F = 0 a normed stream passes the next norm
unchanged, so that all norms together are the first one. "reach": Xavier's init unscaled, where F'
is as large as the identity and the product without norms is not of order one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check
from leadline.claims.norms._blocks import BLOCKS, LENGTH, POST_DEPTH
from leadline.claims.norms._start import HEADS, WIDTH


@claim(
    "norms-break-the-path",
    group="norms",
    notes=("shortcuts",),
    title="What spoils the gradient of Post-LN are the norms on the identity path",
    formula=r"\prod J_{LN} (I + F') \ll \prod (I + F') = \mathcal{O}(1)",
    plain="∏ J_LN (I + F') ≪ ∏ (I + F') = O(1)",
    says="Post-LN wraps the identity path in LayerNorm and thereby breaks it: the product of all "
    "norms compresses the gradient, while the product without them would be of order one.",
    correction="With Xavier's init the norms keep the gradient of Post-LN of order one before "
    "training: they divide away what skips and branches have added. Without them the same "
    "product would explode. With small branches it is of order one with the norms too.",
    why="The product of the Jacobians of 24 Post-LN layers with Xavier's init multiplies a random "
    "gradient by 10 to the power {with_norms:.2f}: order one. Leaving out the Jacobians "
    "of the norms, and nothing "
    "else, makes it 10 to the power {without_norms:.1f}. Each norm does shrink, all together by "
    "10 to the power {shrink:.1f}, but that is just what $I + F'$ has added, since the branch is "
    "as large as the stream. With branches divided by $\\sqrt{2L}$, the small $F'$ that the note "
    "assumes, the product is 10 to the power {small_without:.2f} without the norms and "
    "{small_with:.2f} with them: what one norm has normed passes the next almost unchanged.",
    checks=(
        Check(
            "small_without", "claim", "near", 0.0, within=1.0,
            label="log₁₀ of the product of 24 layers without the norms' Jacobians, updates / √(2L)",
            because="A clean path is of order one: within a factor of ten.",
        ),
        Check(
            "compressed", "claim", "at most", -1.0,
            label="log₁₀ of the product with the norms over that without, updates / √(2L)",
            because="Compressed by the norms is read as tenfold or more over 24 layers.",
        ),
        Check(
            "without_norms", "reach", "near", 0.0, within=1.0,
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
        Check(
            "small_with", "correction", "near", 0.0, within=1.0,
            label="log₁₀ of the product with the norms, updates / √(2L)",
            because="Order one: within a factor of ten.",
        ),
    ),
    source="",
    seconds=1.2,
    needs=(BLOCKS,),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Read the product with and without the norms, and take it again with small branches."""
    from leadline.experiments.gradient_flow.jacobians import norms_apart
    from leadline.experiments.gradient_flow.starts import batch_of
    from leadline.lab.presets.depth_limits import FIXED
    from leadline.lab.tasks import build_task
    from leadline.lab.trainer import model_for
    from leadline.parts import Recipe

    recipe = Recipe(
        depth=POST_DEPTH, width=WIDTH, heads=HEADS, init=FIXED["init"], head=FIXED["head"],
        connection="weighted(alpha=depth)", placement="post",
    )  # fmt: skip
    model = model_for(recipe, build_task(f"stdlib(length={LENGTH})"), seed=seed).eval()
    small = norms_apart(model, batch_of(LENGTH, examples=1, seed=seed))
    found = trials[BLOCKS.name]["norms apart"]
    return Measured(
        {
            "with_norms": found["with"],
            "without_norms": found["without"],
            "shrink": found["shrink"],
            "taken": found["without"] - found["with"],
            "small_without": small.without_size,
            "small_with": small.with_size,
            "compressed": small.with_size - small.without_size,
        }
    )
