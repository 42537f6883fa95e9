"""D01: the gradient does not reach the first layers.

Thresholds. A thousandth of |g| |x| between the last and the first layer: of 80 healthy designs at depths
6 and 24 the smallest share was 0.019 (attention over depth), then 0.43; it is no smaller in the 300
healthy models of the zoo. Parameter gradients that differ by more than the rounding of float32
(1.2e-7): gates that let through half keep 0.003 over 24 layers, models without skips 1e-12.
"""

from __future__ import annotations

from collections.abc import Iterator

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.profile import (
    FLOAT32_EPS,
    free_gradients,
    is_finite_line,
    writes_of,
)
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.reading.diagnosis.words import layers_text
from leadline.record.rows.finding import Finding

SHARE = 1e-3


@rule(
    "D01",
    "gradient-vanishing",
    severity="serious",
    basis="law",
    needs=("gradient.stream", "stream.norm"),
    summary="The gradient of the loss shrinks on its way to the first layers until they cannot learn.",
    why="Layers without a gradient stay as they were drawn, and everything above them learns from noise.",
    is_not="Branches that are switched off at the start (ReZero, zero-initialised output weights): the "
    "stream's gradient passes them. A stream that shrinks or grows by design: the gradient is compared "
    "free of its scale.",
    false_alarms="Gates that close with depth by intention, in models of more than about 60 layers.",
    remedy="Let the stream pass every sublayer unchanged (a residual connection without a norm on it), or "
    "scale the branches of a post-norm model as DeepNorm or Admin do.",
    sources=("Xiong et al. 2020, arXiv 2002.04745", "Wang et al. 2022, arXiv 2203.00555"),
    explains=("does-not-learn", "parameters-unused"),
    example="post-norm-24-layers",
)
def gradient_vanishing(case: Case, rule: Rule) -> Iterator[Finding]:
    """Compare the first layers with the last, by the stream and by the parameters."""
    for stack in case.stacks:
        free = free_gradients(case, stack)
        if not is_finite_line(free) or len(free) < 2:
            continue
        last, first = max(free), min(free)
        lost = [at for at, value in free.items() if value < SHARE * free[last]]
        source = "the last layer; equal where layers neither amplify nor damp"
        if free[last] > 0 and first in lost:
            share = free[first] / free[last]
            yield _finding(
                case,
                rule,
                stack,
                lost,
                share,
                Evidence("gradient times stream, first over last layer", share, 1.0, source),
            )
            continue
        starved = _starved_layers(case, stack)
        if starved:
            share = starved[min(starved)]
            yield _finding(
                case,
                rule,
                stack,
                list(starved),
                share,
                Evidence("gradient of the parameters, first over last layer", share, 1.0, source),
            )


def _starved_layers(case: Case, stack: str) -> dict[int, float]:
    """Layers all of whose writes get less than rounding leaves of the last layer's gradient."""
    lines = [
        line
        for line in writes_of(case, "gradient.parameters", stack).values()
        if is_finite_line(line) and line[max(line)] > 0 and len(line) > 1
    ]
    if not lines:
        return {}
    shares = [{at: value / line[max(line)] for at, value in line.items()} for line in lines]
    layers = {at for at in shares[0] if all(at in one for one in shares)}
    starved = {at: max(one[at] for one in shares) for at in layers}
    starved = {at: share for at, share in sorted(starved.items()) if share < FLOAT32_EPS}
    # A gradient that was cut is exactly 0 below the cut and healthy above it; this one fades.
    fading = any(0 < one[at] < 1e-3 for one in shares for at in one)
    return starved if fading and min(layers) in starved else {}


def _finding(
    case: Case, rule: Rule, stack: str, layers: list[int], share: float, evidence: Evidence
) -> Finding:
    depth = case.depth(stack)
    norms = "post" in case.placements(stack)
    return rule.finding(
        f"The gradient vanishes on its way to {stack} {layers_text(layers, depth)}: layer "
        f"{min(layers)} gets {share:.2g} of what the last layer gets.",
        stack=stack,
        layers=layers,
        evidence=[evidence],
        ruled_out=["a stream that changes its size: the gradient was compared free of it"],
        cause="norms on the skip path of a deep post-norm model"
        if norms
        else "branches without a skip around them, or a skip that is scaled down in every layer",
        remedy="Give every sublayer a skip that keeps the stream (x = x + f(norm(x))).",
        quantity="gradient.stream",
    )
