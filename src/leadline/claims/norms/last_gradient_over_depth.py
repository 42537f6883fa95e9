"""The gradient of the last layer's output matrix over depth: L^0 in Post-LN, L^(-1/2) in Pre-LN.

No note says it, and all of them argue about it: this is what Xiong et al. 2020 (arXiv 2002.04745,
theorem 1) prove about both designs before training, and the reason that they give for warm-up. The
exponents come from Leadline's law of the same name; they are fitted over 12 to 96 layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadline.claims.catalog import Measured, claim
from leadline.claims.claim import Check, Picture
from leadline.claims.norms._start import AT_START, DEPTHS, WIDTH, found_in


@claim(
    "last-gradient-over-depth",
    group="norms",
    notes=(),
    title="Before training, the last layer's gradient does not depend on the depth in Post-LN and "
    "falls as one over its root in Pre-LN",
    formula=r"\left\| \frac{\partial L}{\partial W_2} \right\| \sim L^0 \; (post), "
    r"\quad L^{-1/2} \; (pre)",
    plain="‖∂L/∂W₂‖ ~ L⁰ (post), L^(−1/2) (pre)",
    says="A theorem about both designs before training: the gradient of the last output matrix "
    "stays of its size in Post-LN at any depth and gets smaller in Pre-LN, so large first steps "
    "are a danger to Post-LN.",
    correction="",
    why="The gradient of the last MLP's output matrix was taken at 12, 24, 48 and 96 layers. In "
    "Post-LN it goes with the depth to the power {post:.3f}, in Pre-LN to the power {pre:.3f}. "
    "The reason is the last norm: it divides by the size of the stream, which is of order one in "
    "Post-LN and has grown like the root of the depth in Pre-LN. Times that size, the Pre-LN "
    "gradient is flat (power {pre_times_size:.3f}).",
    checks=(
        Check(
            "post_off", "claim", "near", 0.0, within=0.25,
            label="exponent in Post-LN minus that of the theorem",
            because="Half of the difference between the two exponents; fits scatter by 0.05.",
            over="mean",
        ),
        Check(
            "pre_off", "claim", "near", 0.0, within=0.25,
            label="exponent in Pre-LN minus that of the theorem",
            because="Half of the difference between the two exponents; fits scatter by 0.05.",
            over="mean",
        ),
        Check(
            "pre_times_size", "claim", "near", 0.0, within=0.25,
            label="exponent in Pre-LN times the size of the last stream",
            because="By the proof the size of the stream is all of it: the exponent 0, told from "
            "−1/2 by half of the difference.",
            over="mean",
        ),
    ),
    source="Xiong et al. 2020, arXiv 2002.04745, theorem 1",
    seconds=0.02,
    needs=(AT_START,),
)  # fmt: skip
def measure(seed: int, trials: Mapping[str, Mapping[str, Any]]) -> Measured:
    """Fit the exponents and set them beside the law."""
    from leadline.experiments.gradient_flow.growth import facts_of
    from leadline.theory.depth import LAWS

    law = LAWS.get("xiong-last-gradient")()
    numbers: dict[str, float] = {}
    lines: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {}
    depths = tuple(float(depth) for depth in DEPTHS)
    for design, label in (("pre", "Pre-LN"), ("post", "Post-LN")):
        found = found_in(trials, design)
        weights = {depth: found.weight(depth) for depth in DEPTHS}
        expected = law.exponent(facts_of(design, DEPTHS[-1], width=WIDTH, mean_square=()))
        assert expected is not None
        numbers[design] = found.exponent(weights)
        numbers[f"{design}_off"] = numbers[design] - expected
        lines[label] = (depths, tuple(weights.values()))
        first = weights[DEPTHS[0]]
        lines[f"{label}, theorem"] = (
            depths,
            tuple(first * (depth / DEPTHS[0]) ** expected for depth in DEPTHS),
        )
        if design == "pre":
            sized = {d: weights[d] * found.squares(d)[-1] ** 0.5 for d in DEPTHS}
            numbers["pre_times_size"] = found.exponent(sized)
    return Measured(
        numbers,
        Picture(
            "depth",
            "gradient of the last output matrix",
            lines,
            x_log=True,
            y_log=True,
            faint=("Pre-LN, theorem", "Post-LN, theorem"),
        ),
    )
