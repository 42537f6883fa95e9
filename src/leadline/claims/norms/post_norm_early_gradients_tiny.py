"""Post-LN: do the first layers get tiny gradients?

The note derives it from the Jacobians alone, for any weights, so it must hold before training:
this entry is about that. |dL/dx_0| / |dL/dx_L| is read at 12, 24, 48 and 96 layers; tiny is a
tenth or less. What training without warm-up makes of it is another claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture
from leadline.claims.norms._start import AT_START, DEPTHS, found_in

DEPTH = 48


@claim(
    "post-norm-early-gradients-tiny",
    group="norms",
    notes=("shortcuts", "summary"),
    title="In Post-LN the gradient fades through the norms, so the first layers get tiny "
    "gradients (before training)",
    formula=r"\left\| \frac{\partial L}{\partial x_0} \right\| \ll "
    r"\left\| \frac{\partial L}{\partial x_L} \right\|",
    plain="‖∂L/∂x₀‖ ≪ ‖∂L/∂x_L‖ in Post-LN",
    says="In Post-LN every layer multiplies the gradient by the Jacobian of a LayerNorm, which "
    "shrinks it, so that the first layers receive very small gradients.",
    correction="Before training no gradient vanishes in Post-LN: the norms take away what skips "
    "and branches have added, and no layer gets less than a tenth of the last one's gradient. "
    "The vanishing that is seen in practice is acquired in training without warm-up.",
    why="Post-LN models of 12 to 96 layers were drawn and one gradient computed through each. "
    "The gradient at the entry was {ratio_deep:.1f} times that at the end with 96 layers, and "
    "still {least_entry:.2f} times at the depth where it was smallest. The smallest at any layer "
    "of any depth was {least_any:.2f} of the last, the largest {most_any:.0f} times it. The "
    "derivation forgets that $I + F'$ enlarges "
    "about as much as the norm takes away.",
    checks=(
        Check(
            "least_entry", "claim", "at most", 0.1,
            label="gradient at entry over end, Post-LN, least of four depths",
            because="Tiny is read as a tenth or less, at one of the depths at least.",
            log=True,
        ),
        Check(
            "ratio_deep", "claim", "at most", 0.1,
            label="gradient at entry over end, Post-LN, 96 layers",
            because="Tiny is read as a tenth or less; by the note's argument deeper means less.",
            log=True,
        ),
        Check(
            "least_any", "correction", "at least", 0.1,
            label="least gradient of any layer over the last one's, four depths",
            because="Not tiny: above a tenth. Single draws scatter between 0.3 and 1.",
            log=True,
        ),
    ),
    source="Xiong et al. 2020, arXiv 2002.04745",
    seconds=0.01,
    needs=(AT_START,),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Read gradients of Post-LN at all depths."""
    post = found_in(trials, "post")
    layers = tuple(float(layer) for layer in range(DEPTH + 1))
    lines = {
        label: (layers, _relative(found_in(trials, design).gradients(DEPTH)))
        for label, design in (("Post-LN", "post"), ("Pre-LN", "pre"), ("no skip, norms", "no skip"))
    }
    return Measured(
        {
            "least_entry": min(post.ratio(depth) for depth in DEPTHS),
            "ratio_deep": post.ratio(96),
            "least_any": min(post.least(depth) for depth in DEPTHS),
            "most_any": max(max(_relative(post.gradients(depth))) for depth in DEPTHS),
        },
        Picture("layer", "gradient at the layer / at the last", lines, y_log=True),
    )


def _relative(gradients: list[float]) -> tuple[float, ...]:
    return tuple(one / gradients[-1] for one in gradients)
