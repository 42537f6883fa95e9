"""P04: a module returns NaN or infinity although what enters it is finite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leadline.reading.diagnosis.case import OUTSIDE, Case
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.record.rows.finding import Finding


@rule(
    "P04",
    "not-finite",
    severity="serious",
    basis="identity",
    needs=("not_finite",),
    summary="The output of a module holds NaN or infinity.",
    why="Everything after it is not finite either: the model predicts nothing and learns nothing.",
    is_not="Masks, which hold minus infinity by right.",
    false_alarms="A module that returns minus infinity by design, such as one that computes a mask or "
    "logs of zeros, while what comes after it is finite.",
    remedy="Look into the module that is named: an overflow in half precision, a division by zero, the "
    "logarithm or root of a number that must not be negative, or weights that are broken.",
    sources=("https://github.com/pytorch/pytorch/issues/103749",),
    explains=(
        "loss-worse-than-uniform", "gradient-vanishing", "gradient-exploding", "stream-exploding",
        "tokens-equal", "does-not-learn", "gradient-cut", "random-in-evaluation", "float16-overflow",
        "massive-activations",
    ),
    example="weight-nan",
)  # fmt: skip
def not_finite(case: Case, rule: Rule) -> Iterator[Finding]:
    """Name the module where it begins."""
    fact: dict[str, Any] = case.fact("not_finite") or {}
    first: dict[str, Any] | None = fact.get("first")
    if not first:
        return
    layer, stack = first.get("layer"), first.get("stack")
    place = f" in {stack} layer {layer}" if layer and stack != OUTSIDE else ""
    half = first["dtype"] == "float16"
    remedy = (
        "Run this part in bfloat16 or float32."
        if half
        else f"Look into {first['module']} for an overflow or a division by zero, and load its weights again."
    )
    yield rule.finding(
        f"The output of {first['module']}{place} is not finite"
        f"{', although what enters it is' if first['inputs_finite'] else ''}.",
        stack=stack if layer else None,
        layers=[layer] if layer else [],
        parameter=first["module"],
        evidence=[Evidence("share of its output that is not finite", float(first["share"]), 0.0)],
        cause="values beyond the range of float16"
        if half
        else "weights that are not finite, an overflow, or a division by zero",
        remedy=remedy,
        quantity="stream.norm",
    )
