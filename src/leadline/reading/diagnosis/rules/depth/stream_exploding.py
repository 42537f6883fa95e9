"""D03: the stream grows out of all proportion, in one layer or over depth.

Thresholds. A jump: the median norm grows tenfold in one block, and by as much more than in the twin or
the blocks around it; it grows at most 1.6-fold after block 1 in SmolLM2.
Over depth: a thousandfold from block 1 to the last, where designs without a norm on the stream reach
100 at depth 24 (output norms on a small embedding).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.profile import is_finite_line, line_of, twin_line_of
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.reading.diagnosis.words import layers_text
from leadline.record.rows.finding import Finding

JUMP = 10.0
GROWTH = 1e3


@rule(
    "D03",
    "stream-exploding",
    severity="warning",
    basis="neighbours",
    needs=("stream.norm",),
    summary="The residual stream jumps in one layer, or grows exponentially with depth.",
    why="Later writes drown in it, its gradient shrinks by the same factor, and half precision overflows.",
    is_not="Growth like the square root of depth, or linear growth, which pre-norm models have by law; a "
    "few massive tokens, which the median leaves out; the first block, which is another rule's.",
    false_alarms="A design that lifts the stream on purpose after some layer.",
    remedy="Look for the write that does it and scale its output weights back; scale residual branches by "
    "1/sqrt(2 depth).",
    sources=("Xiong et al. 2020, arXiv 2002.04745", "Takase et al. 2023, arXiv 2312.16903"),
    explains=("writes-drowned", "float16-overflow", "bfloat16-write-loss", "depth-unused"),
    example="weights-grow-with-depth",
)
def stream_exploding(case: Case, rule: Rule) -> Iterator[Finding]:
    """Look for one block that jumps, else for growth over all of them."""
    for stack, facts in case.stacks.items():
        if int(facts.get("lanes", 1)) > 1:
            continue
        line = line_of(case, "stream.norm", stack, statistic="median") or line_of(
            case, "stream.norm", stack
        )
        if not is_finite_line(line) or len(line) < 3 or not all(v > 0 for v in line.values()):
            continue
        twin = twin_line_of(case, "stream.norm", stack)
        jump = _largest_jump(line, twin)
        growth = line[max(line)] / line[min(at for at in line if at >= 1)]
        if jump is not None:
            yield _jump_finding(case, rule, stack, jump, line)
        elif growth > GROWTH:
            layers = [at for at in line if at >= 1]
            yield rule.finding(
                f"The stream grows {growth:.3g}-fold from layer 1 to layer {max(line)} of the {stack}, "
                f"by {growth ** (1 / (len(layers) - 1)):.2g} in every layer.",
                stack=stack,
                layers=layers,
                evidence=[
                    Evidence(
                        "stream norm, last over first layer",
                        growth,
                        math.sqrt(len(layers)),
                        "the law of pre-norm layers that write alike",
                    )
                ],
                cause="branches that are fed with the stream itself, without a norm",
                remedy="Put a norm before every branch, or scale the branches by 1/sqrt(2 depth).",
                quantity="stream.norm",
            )


def _largest_jump(
    line: dict[int, float], twin: dict[int, float]
) -> tuple[int, float, float] | None:
    """The layer with the largest step, its step, and what was expected of it."""
    steps = {at: line[at] / line[at - 1] for at in line if at >= 2 and at - 1 in line}
    if not steps:
        return None
    at = max(steps, key=lambda one: steps[one])
    others = [step for other, step in steps.items() if other != at]
    expected = twin[at] / twin[at - 1] if at in twin and twin.get(at - 1, 0.0) > 0 else None
    if expected is None:
        if len(others) < 2:
            return None
        expected = median(others)
    if steps[at] > JUMP * max(expected, 1.0):
        return at, steps[at], expected
    return None


def _jump_finding(
    case: Case, rule: Rule, stack: str, jump: tuple[int, float, float], line: dict[int, float]
) -> Finding:
    at, step, expected = jump
    ratios = {
        point: values[at]
        for (name, point), values in case.lines("update.ratio").items()
        if name == stack and at in values
    }
    role = max(ratios, key=lambda one: ratios[one], default=None)
    module = case.branch(stack, at, role) if role else ""
    by = f", by what its {role} writes" if role else ""
    return rule.finding(
        f"The stream jumps {step:.3g}-fold in {stack} {layers_text([at])}{by}.",
        stack=stack,
        layers=[at],
        sublayer=role,
        parameter=module or None,
        evidence=[
            Evidence(
                f"stream norm after layer {at} over before",
                step,
                expected,
                "the twin, or other layers",
            ),
            Evidence(f"stream norm after layer {at}", line[at], line[at - 1], "the layer before"),
        ],
        cause="output weights of one write that are far too large, or a scale applied there alone",
        remedy=f"Compare the weights of {module or case.module(stack, at)} with those of the layers "
        f"around it; dividing its output weights by about {step:.2g} brings the stream back.",
        quantity="stream.norm",
    )
