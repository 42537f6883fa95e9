"""X01: the model is not what it was said to be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leadline.reading.diagnosis.calls import every_call
from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.found_design import StackDesign, stack_designs
from leadline.reading.diagnosis.intended import Expectation, parse_intended
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.reading.diagnosis.words import layers_text
from leadline.record.rows.finding import Finding


@rule(
    "X01",
    "not-as-intended",
    severity="serious",
    basis="identity",
    needs=("intended", "anatomy"),
    summary="What was found in the model contradicts what it is meant to be (--intended).",
    why="Only its author knows what a model is meant to be; this compares that with what it computes.",
    is_not="Not an opinion about designs: without an intention this rule does not look.",
    false_alarms="An intention that was written down wrongly.",
    remedy="Change the code, or the intention.",
    sources=("https://github.com/huggingface/transformers/pull/26792",),
    explains=("unlike-its-family",),
    example="window-one-too-long",
)
def not_as_intended(case: Case, rule: Rule) -> Iterator[Finding]:
    """Every expectation of the intention that a stack contradicts."""
    intention = parse_intended(str(case.fact("intended")))
    stacks = list(stack_designs(case))
    for expectation in intention.expectations:
        for stack in _stacks_for(expectation, stacks):
            answer = _contradiction(case, stack, expectation)
            if answer is not None:
                what, value, expected, layers = answer
                yield _finding(rule, stack, expectation, what, value, expected, layers)


def _stacks_for(expectation: Expectation, stacks: list[StackDesign]) -> list[StackDesign]:
    """The stacks that an expectation speaks of: of a pair, causality is the decoder's."""
    if expectation.aspect in ("causal", "depth") and len(stacks) > 1:
        return [stack for stack in stacks if stack.name.startswith("decoder")][:1]
    return stacks


def _contradiction(
    case: Case, stack: StackDesign, one: Expectation
) -> tuple[str, Any, Any, list[int]] | None:
    """(what, value, expected, layers) where a stack is not as intended."""
    design = case.design
    if one.aspect == "placement":
        odd = stack.layers_without(str(one.value))
        if not odd:
            return None
        return (
            "placement of norms",
            "/".join(sorted(stack.placements)),
            one.value,
            [n for n, _ in odd],
        )
    values: dict[str, Any] = {
        "causal": stack.causal,
        "parallel": stack.parallel,
        "final_norm": stack.final_norm,
        "tied": design.get("tied"),
        "depth": stack.depth,
        "width": stack.width,
    }
    if one.aspect in values:
        value = values[one.aspect]
        differs = value is not None and value != one.value
        return (one.aspect.replace("_", " "), value, one.value, []) if differs else None
    if one.aspect == "window":
        return _window(case, stack, one)
    if one.aspect == "norm":
        kinds = stack.norms - {"other"}
        return (
            ("kind of norm", "/".join(sorted(kinds)), one.value, [])
            if kinds and set(kinds) != {str(one.value)}
            else None
        )
    if one.aspect == "gain":
        odd_gains = {gain for gain in stack.gains if abs(gain - float(one.value)) > 1e-4}  # pyright: ignore[reportArgumentType]
        return ("factor of updates", sorted(odd_gains)[0], one.value, []) if odd_gains else None
    if one.aspect == "deepnorm":
        alpha = (2 * stack.depth) ** 0.25
        near = stack.settled and all(abs(keep / alpha - 1) < 0.02 for keep in stack.keeps)
        return None if near else ("factor of the stream", _some(stack.keeps), round(alpha, 4), [])
    return None


def _window(
    case: Case, stack: StackDesign, one: Expectation
) -> tuple[str, Any, Any, list[int]] | None:
    """How many tokens a token sees, itself included, where the inputs are long enough to tell."""
    seen = {
        call["layer"]: call["visible"]["back"] + 1
        for call in every_call(case)
        if call["stack"] == stack.name and call["visible"]["tokens"] > int(str(one.value))
    }
    odd = sorted(layer for layer, tokens in seen.items() if tokens != one.value)
    return ("tokens that a token sees", seen[odd[0]], one.value, odd) if odd else None


def _some(values: frozenset[float]) -> float | str:
    return sorted(values)[0] if values else "none"


def _finding(
    rule: Rule, stack: StackDesign, one: Expectation, what: str, value: Any, expected: Any,
    layers: list[int],
) -> Finding:  # fmt: skip
    where = (
        f" in {layers_text(layers, stack.depth)}"
        if layers and len(set(layers)) < stack.depth
        else ""
    )
    return rule.finding(
        f"The {stack.name} is not as intended ('{one.phrase}'): {what} is {_said(value)}{where}, "
        f"not {_said(expected)}.",
        stack=stack.name,
        layers=layers if len(set(layers)) < stack.depth else (),
        evidence=[Evidence(what, _said(value), _said(expected), f"intended: {one.phrase}")],
        cause="the code does something else than was meant",
        remedy=Remedy(f"Make it {one.phrase}, or change what was intended."),
    )


def _said(value: Any) -> str:
    return (
        {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)
    )
