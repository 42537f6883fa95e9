"""A03: attention that does not depend on the tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leadline.reading.diagnosis.calls import every_call
from leadline.reading.diagnosis.case import Case, outliers
from leadline.reading.diagnosis.panels import place_text
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.record.rows.finding import Finding

FACTOR = 30.0
"""Logits that are spread so many times less than those of the nearest layers: twice the 13 that was seen
in a healthy trained model before it was set, because an even first layer is common and harmless."""
DRAWN = 1.5
"""Logits within this factor of the twin's, among layers that are not: the layer is as it was drawn."""


@rule(
    "A03",
    "attention-uniform",
    severity="warning",
    basis="neighbours",
    needs=("attention.logit_std",),
    summary="Looks for layers whose attention logits are all alike, unlike those of their neighbours.",
    why="Every token gets the same mixture: the layer averages and cannot choose.",
    is_not="Designs that start with zero queries in every layer; one layer as it was drawn among trained "
    "ones, which is one of foreign weights.",
    false_alarms="A layer that trained to average.",
    remedy="Look at the weights of queries and keys: zero, tiny or never loaded.",
    sources=("https://arxiv.org/abs/2103.03404",),
    explains=(
        "loss-worse-than-uniform",
        "loss-worse-than-unigram",
        "weights-foreign",
        "positions-unused",
    ),
    example="logits-zero",
)
def attention_uniform(case: Case, rule: Rule) -> Iterator[Finding]:
    """Compare the spread of the logits with the neighbours in depth; look what masks leave of them."""
    drowned = [one for one in every_call(case) if one.get("drowned")]
    yield from _drowned(case, rule, drowned)
    told = {(one["stack"], one["layer"]) for one in drowned}
    twins = case.twin_lines("attention.logit_std")
    for (stack, point), every in case.lines("attention.logit_std").items():
        twin = twins.get((stack, point), {})
        line = {layer: value for layer, value in every.items() if (stack, layer) not in told}
        zero = [layer for layer, value in line.items() if value == 0.0 and twin.get(layer, 1.0) > 0]
        if zero and (len(zero) < len(line) or twin):
            typical = twin if len(zero) == len(line) else line
            expected = sorted(typical.values())[len(typical) // 2]
            yield _finding(case, rule, stack, point, zero, 0.0, expected)
        elif line and len(zero) == len(line) and case.at_initialisation is None:
            yield from _without_twin(case, rule, stack, point, line)
        for one in outliers(line, factor=FACTOR, twin=twin or None):
            drawn = 1 / DRAWN < one.value / twin.get(one.layer, one.expected) < DRAWN
            if one.value < one.expected and not drawn:
                yield _finding(case, rule, stack, point, [one.layer], one.value, one.expected)


def _drowned(case: Case, rule: Rule, drowned: list[dict[str, Any]]) -> Iterator[Finding]:
    """Masks that add so large a number to every key that the products are rounded away beside it."""
    stacks: dict[str, list[dict[str, Any]]] = {}
    for one in drowned:
        stacks.setdefault(one["stack"], []).append(one)
    for stack, calls in stacks.items():
        layers = sorted({one["layer"] for one in calls})
        yield rule.finding(
            f"The attention of {place_text(case, stack, layers)} is uniform: its mask adds so large a "
            "number to every key, the visible ones too, that nothing is left of the logits.",
            stack=stack,
            layers=layers,
            sublayer="attention",
            parameter=calls[0]["module"],
            evidence=[
                Evidence(
                    "weights of the keys that a query may see",
                    "all equal",
                    "unequal, as queries times keys are",
                )
            ],
            cause="an additive mask, 0 where a key may be seen, is read as flags, 1 where it may",
            remedy=f"Add 0 to the keys that a query may see in {calls[0]['module']}, and -inf to the rest.",
            severity="serious",
            confidence="certain",
        )


def _without_twin(
    case: Case, rule: Rule, stack: str, point: str, line: dict[int, float]
) -> Iterator[Finding]:
    """Logits that are 0 in every layer although queries and keys are not: the scale is 0."""
    weights = case.lines("attention.query_weight"), case.lines("attention.key_weight")
    alive = all(any(one.get((stack, point), {}).values()) for one in weights)
    if alive:
        yield _finding(case, rule, stack, point, sorted(line), 0.0, 1.0)


def _finding(
    case: Case,
    rule: Rule,
    stack: str,
    point: str,
    layers: list[int],
    value: float,
    expected: float,
) -> Finding:
    return rule.finding(
        f"The attention of {place_text(case, stack, layers)} is uniform: its logits hardly depend on the "
        "tokens.",
        stack=stack,
        layers=layers,
        sublayer=point,
        parameter=case.branch(stack, layers[0], point) or None,
        evidence=[Evidence("spread of the logits", value, expected, "neighbours in depth")],
        cause="weights of queries or keys are zero or tiny in this layer",
        remedy="Compare the query and key weights of this layer with its neighbours.",
    )
