"""D02: the gradient grows on its way to the first layers.

Threshold: a thousandfold of |g| |x| between the last layer and the first. Of 80 healthy designs at depths
6 and 24 and 300 healthy models of the zoo the largest was 8.4; a stack without norms that is drawn by
Xavier reaches 1e4 at 12 layers and 4e13 at 24.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.profile import free_gradients, is_finite_line, line_of
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.reading.diagnosis.words import layers_text
from leadline.record.rows.finding import Finding

FACTOR = 1e3


@rule(
    "D02",
    "gradient-exploding",
    severity="serious",
    basis="law",
    needs=("gradient.stream", "stream.norm"),
    summary="The gradient of the loss grows layer by layer on its way to the input.",
    why="The first layers jump at the first step, and clipping the whole gradient stops all others.",
    is_not="A stream that grows with depth, whose gradient is smaller above by the same factor: the "
    "gradient is compared free of its scale.",
    false_alarms="Trained models on inputs that they have never seen the like of.",
    remedy="Normalise what enters every branch (pre-norm), or draw the branches smaller, by "
    "1/sqrt(2 depth).",
    sources=("Xiong et al. 2020, arXiv 2002.04745", "Zhang et al. 2019, arXiv 1901.09321"),
    explains=("does-not-learn",),
)
def gradient_exploding(case: Case, rule: Rule) -> Iterator[Finding]:
    """Compare every layer with the last; name the layer that does it where it is one."""
    for stack in case.stacks:
        free = free_gradients(case, stack)
        if not is_finite_line(free) or len(free) < 2 or not free[max(free)] > 0:
            continue
        last = max(free)
        large = [at for at, value in free.items() if value > FACTOR * free[last]]
        if not large:
            continue
        peak = max(large, key=lambda at: free[at])
        growth = free[peak] / free[last]
        guilty = _guilty_layers(free, peak, growth)
        depth = case.depth(stack)
        raw = line_of(case, "gradient.stream", stack)
        where = (
            f"in {stack} layer {guilty[0]}"
            if len(guilty) == 1
            else f"over {stack} {layers_text(guilty, depth)}"
        )
        yield rule.finding(
            f"The gradient explodes {where}: below it is {growth:.2g} times larger than at the top.",
            stack=stack,
            layers=guilty,
            evidence=[
                Evidence(
                    f"gradient times stream, layer {peak} over layer {last}",
                    growth,
                    1.0,
                    "equal where layers neither amplify nor damp",
                ),
                Evidence(f"gradient at the stream after layer {peak}", raw[peak]),
            ],
            ruled_out=[
                "a stream that grows with depth: the gradient was compared free of its size"
            ],
            cause="branches that amplify what enters them, without a norm before them"
            if "none" in case.placements(stack)
            else "weights that are too large, here or in every layer",
            remedy="Put a norm before every branch, or draw the output weights of the branches smaller.",
            quantity="gradient.stream",
        )


def _guilty_layers(free: dict[int, float], peak: int, growth: float) -> list[int]:
    """The one layer that gives more than half of the growth, else all that it passes through."""
    passed = [at for at in sorted(free) if at > peak and at - 1 in free]
    for at in passed:
        if free[at] > 0 and math.log(max(free[at - 1] / free[at], 1e-300)) > 0.5 * math.log(growth):
            return [at]
    return passed
