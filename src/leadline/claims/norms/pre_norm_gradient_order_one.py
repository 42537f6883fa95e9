"""Pre-LN: does the gradient stay of order one through depth?

The note assumes layers near the identity, small F'. "claim": designs that are so, updates divided
by sqrt(2 L) (the note means GPT-like models, which start like that), and that nothing vanishes in
plain Pre-LN. "reach": Pre-LN with Xavier's init, whose updates are not small: there the gradient
grows toward the entry with a power of the depth. Order one means the exponent 0 over the depth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture
from leadline.claims.norms._start import AT_START, DEPTHS, found_in


@claim(
    "pre-norm-gradient-order-one",
    group="norms",
    notes=("shortcuts", "summary"),
    title="In Pre-LN the gradient stays of order one at any depth",
    formula=r"\left\| \frac{\partial L}{\partial x_0} \right\| = \mathcal{O}(1) "
    r"\left\| \frac{\partial L}{\partial x_L} \right\|",
    plain="‖∂L/∂x₀‖ = O(1) ‖∂L/∂x_L‖ in Pre-LN",
    says="With small updates every Pre-LN layer is near the identity, the gradient passes directly "
    "through the skip, and its size stays of order one even in 96 layers.",
    correction="The gradient of a Pre-LN model never vanishes before training. It stays of order "
    "one if the updates are scaled by $1/\\sqrt{2L}$; with unscaled updates it grows toward the "
    "first layer, with the power {exponent:.1f} of the depth.",
    why="With updates divided by $\\sqrt{2L}$ the gradient at the entry is {scaled:.2f} times that "
    "at the end with 96 layers and {scaled_12:.2f} times with 12. With Xavier's init and "
    "no scaling it is {ratio_deep:.0f} times as large with 96 layers, and it grows with the "
    "depth to the power {exponent:.2f}. What never happens is vanishing: no layer gets less than "
    "{least:.2f} of the last one's gradient.",
    checks=(
        Check(
            "scaled", "claim", "near", 1.0, within=0.5,
            label="gradient at entry over end, 96 layers, updates / √(2L)",
            because="Order one: within a half of the same size.",
        ),
        Check(
            "least", "claim", "at least", 0.5,
            label="least gradient of any layer over the last one's, Pre-LN, four depths",
            because="Not shrinking: at least half is left.",
        ),
        Check(
            "exponent", "reach", "near", 0.0, within=0.25,
            label="exponent over depth of the gradient at entry over end, Pre-LN",
            because="Order one means the exponent 0; single fits scatter by 0.12.",
            over="mean",
        ),
        Check(
            "scaled_exponent", "correction", "near", 0.0, within=0.1,
            label="the same exponent with updates / √(2L)",
            because="Order one means the exponent 0; single fits scatter by 0.02.",
            over="mean",
        ),
    ),
    source="Xiong et al. 2020, arXiv 2002.04745",
    seconds=0.01,
    needs=(AT_START,),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Read gradients of Pre-LN with and without scaling over depth."""
    pre, scaled = found_in(trials, "pre"), found_in(trials, "scaled pre")
    ratios = {depth: pre.ratio(depth) for depth in DEPTHS}
    kept = {depth: scaled.ratio(depth) for depth in DEPTHS}
    depths = tuple(float(depth) for depth in DEPTHS)
    several = {
        "Pre-LN": "pre",
        "Pre-LN, updates / √(2L)": "scaled pre",
        "GPT-2's init": "gpt2-scaled",
        "Post-LN": "post",
    }
    return Measured(
        {
            "scaled": scaled.ratio(96),
            "scaled_12": scaled.ratio(12),
            "least": min(pre.least(depth) for depth in DEPTHS),
            "ratio_deep": pre.ratio(96),
            "exponent": pre.exponent(ratios),
            "scaled_exponent": scaled.exponent(kept),
        },
        Picture(
            "depth",
            "gradient at entry / at the end",
            {
                label: (depths, tuple(found_in(trials, name).ratio(depth) for depth in DEPTHS))
                for label, name in several.items()
            },
            x_log=True,
            y_log=True,
        ),
    )
