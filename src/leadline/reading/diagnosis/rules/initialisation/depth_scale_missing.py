"""I03: projections that write to the stream lack the factor 1 / sqrt(2 L).

GPT-2 and its kin draw them smaller by the square root of the number of writes, so that the stream stays
of one size. Threshold: in 9 of 10 layers the ratio to the twin is within a quarter of sqrt(2 L), and
that is at least 1.9 (two layers), while other matrices are within 1.3 of their twins.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median

from leadline.reading.diagnosis.case import OUTSIDE, Case, CasePlace
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.reading.diagnosis.tensors import (
    has_fresh_constants,
    matrix_ratios,
    role_of,
    tensor_lines,
)
from leadline.record.rows.finding import Finding

NEAR = 1.25


@rule(
    "I03",
    "depth-scale-missing",
    severity="warning",
    basis="twin",
    needs=("weights.rms", "twin"),
    summary="Projections that write to the stream are larger than their twins by sqrt(2 L) in all "
    "layers: the depth scale of the initialisation is missing.",
    why="The variance of the stream grows with every write instead of staying bounded.",
    is_not="Designs without such a scale: their twins lack it too.",
    false_alarms="A design that leaves the scale out on purpose while the class of its configuration "
    "has it.",
    remedy="Draw these projections with the spread divided by sqrt(2 L).",
    sources=("Radford et al. 2019, Language Models are Unsupervised Multitask Learners",),
    explains=(
        "stream-exploding", "writes-drowned", "first-writes-too-large", "weights-scale-odd",
        "residual-scale-wrong", "gradient-exploding", "depth-unused",
    ),
    example="depth-scale-missing",
)  # fmt: skip
def depth_scale_missing(case: Case, rule: Rule) -> Iterator[Finding]:
    """Lines of matrices whose ratio to the twin is that factor throughout."""
    if has_fresh_constants(case) is False:
        return
    ratios = matrix_ratios(case)
    by_stack: dict[str, list[tuple[str, float]]] = {}
    for (stack, point), line in tensor_lines(case, "weights.rms").items():
        factor = math.sqrt(2 * case.depth(stack))
        values = [
            ratios[p] for layer in line if (p := CasePlace(stack, layer, None, point)) in ratios
        ]
        if len(values) < 2 or factor < 1.9:
            continue
        near = sum(1 / NEAR < value / factor < NEAR for value in values)
        if near >= 0.9 * len(values):
            by_stack.setdefault(stack, []).append((point, median(values)))
    named = {(stack, point) for stack, lines in by_stack.items() for point, _ in lines}
    others = [
        ratio
        for place, ratio in ratios.items()
        if place.stack != OUTSIDE and (place.stack, place.point) not in named
    ]
    # Where nearly all matrices have it, it is no depth scale but the spread of all.
    if not by_stack or not others or not 1 / 1.3 < median(others) < 1.3:
        return
    for stack, lines in by_stack.items():
        layers = sorted(tensor_lines(case, "weights.rms")[stack, lines[0][0]])
        factor = math.sqrt(2 * case.depth(stack))
        points = " and ".join(point for point, _ in lines)
        first = CasePlace(stack, layers[0], None, lines[0][0])
        name = case.parameter(first)
        value = case.values("weights.rms")[first]
        names = [case.parameter(CasePlace(stack, at, None, p)) for p, _ in lines for at in layers]
        roles = {role_of(case, stack, layers[0], case.parameter(CasePlace(stack, layers[0], None, p)))
                 for p, _ in lines}  # fmt: skip
        yield rule.finding(
            f"The depth scale is missing: {points} of all {len(layers)} layers of {stack} are "
            f"{lines[0][1]:.3g} times larger than their twins, which is sqrt(2 L).",
            stack=stack,
            layers=layers,
            sublayer=roles.pop() if len(roles) == 1 else None,
            parameter=name,
            evidence=[
                Evidence(f"rms of {name}", value, value / lines[0][1], "the twin"),
                Evidence("sqrt(2 L)", factor),
            ],
            ruled_out=["a larger spread of all weights: other matrices are as their twins"],
            cause="the initialisation does not divide by the root of the number of writes",
            remedy=Remedy(
                f"Divide these projections by {factor:.3g} at the start.",
                edit={"edit": "scale-tensors", "parameters": names, "factor": 1 / factor},
            ),
            quantity="weights.rms",
        )
