"""LayerNorm keeps gradients alive in deep networks, together with attention and skips.

Read as the note says it: in the residual stack, with norms against without. Before training, at 96
layers: |dL/dx_0| / |dL/dx_L| within a factor of a hundred with norms in either place, and out of
all bounds without. That a stack can also be kept by scaling its updates is no contradiction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture
from leadline.claims.norms._start import AT_START, DEPTHS, found_in


@claim(
    "layernorm-keeps-gradients",
    group="norms",
    notes=("deep-dive",),
    title="With attention and skips, LayerNorm keeps gradients alive through a deep network "
    "(before training)",
    formula=r"\left| \log_{10} \frac{\|\partial L / \partial x_0\|}"
    r"{\|\partial L / \partial x_L\|} \right| \leq 2",
    plain="‖∂L/∂x₀‖ / ‖∂L/∂x_L‖ stays bounded with LayerNorm",
    says="LayerNorm reduces the drift of scales, and where attention and residual connections are "
    "stacked it keeps gradients effective through a deep network.",
    correction="",
    why="In 96 untrained layers the gradient at the entry is {pre:.0f} times that at the end in "
    "Pre-LN and {post:.1f} times in Post-LN. The same stack without norms multiplies it by "
    "{bare:.0e}: it explodes. So before training the sentence is right. What Post-LN loses during "
    "training is the subject of other claims.",
    checks=(
        Check(
            "pre_orders", "claim", "at most", 2.0,
            label="orders of magnitude between the gradients at entry and end, Pre-LN",
            because="Kept: within a factor of a hundred over 96 layers, in either direction.",
        ),
        Check(
            "post_orders", "claim", "at most", 2.0,
            label="the same in Post-LN",
            because="Kept: within a factor of a hundred over 96 layers, in either direction.",
        ),
        Check(
            "bare_orders", "claim", "at least", 6.0,
            label="the same without norms",
            because="That the norm does it: without it at least a millionfold change.",
        ),
    ),
    source="",
    seconds=0.01,
    needs=(AT_START,),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Gradients at the entry over those at the end, with and without norms."""
    several = {"pre": "Pre-LN", "post": "Post-LN", "no norm": "no norm"}
    depths = tuple(float(depth) for depth in DEPTHS)
    ratios = {
        design: tuple(found_in(trials, design).ratio(depth) for depth in DEPTHS)
        for design in several
    }
    deepest = {design: values[-1] for design, values in ratios.items()}
    return Measured(
        {
            "pre": deepest["pre"],
            "post": deepest["post"],
            "bare": deepest["no norm"],
            "pre_orders": abs(math.log10(deepest["pre"])),
            "post_orders": abs(math.log10(deepest["post"])),
            "bare_orders": abs(math.log10(deepest["no norm"])),
        },
        Picture(
            "depth",
            "gradient at entry / at the end",
            {label: (depths, ratios[design]) for design, label in several.items()},
            x_log=True,
            y_log=True,
        ),
    )
