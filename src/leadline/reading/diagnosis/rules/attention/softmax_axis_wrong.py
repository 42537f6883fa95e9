"""A12: the softmax of the attention logits runs over another axis than the keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.panels import place_text
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.record.rows.finding import Finding

_AXES = {-2: "the queries", -3: "the heads", -4: "the examples"}


@rule(
    "A12",
    "softmax-axis-wrong",
    severity="serious",
    basis="identity",
    needs=("softmax_axes",),
    summary="Looks for a softmax of a matrix of tokens by tokens that does not run over its last axis.",
    why="The weights of a query do not sum to one: how much a token gets depends on what other queries, "
    "heads or examples want, and in a causal model the past depends on the future.",
    is_not="Softmax over experts, classes or slots: only matrices of tokens by tokens count.",
    false_alarms="Designs in which keys share out their attention among the queries.",
    remedy="softmax(dim=-1) over the logits [example, head, query, key].",
    sources=("https://arxiv.org/abs/1706.03762",),
    explains=(
        "future-leaks",
        "past-unreached",
        "examples-mixed",
        "not-as-intended",
        "attention-uniform",
        "attention-saturated",
        "tokens-equal",
    ),
    example="softmax-over-queries",
)
def softmax_axis_wrong(case: Case, rule: Rule) -> Iterator[Finding]:
    """Name the layers and the axis."""
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for one in case.fact("softmax_axes", ()):
        groups.setdefault((one["stack"], one["axis"]), []).append(one)
    for (stack, axis), calls in groups.items():
        layers = sorted({one["layer"] for one in calls if one["layer"]})
        over = _AXES.get(axis, f"axis {axis}")
        path = calls[0]["module"]
        yield rule.finding(
            f"The softmax of the attention of {place_text(case, stack, layers)} runs over {over}, not "
            f"over the keys ({path}).",
            stack=stack,
            layers=layers,
            sublayer="attention",
            parameter=path,
            evidence=[Evidence("axis of the softmax", axis, -1, "[example, head, query, key]")],
            cause=f"dim={axis} where dim=-1 belongs",
            remedy=f"Take the softmax over dim=-1 in {path}.",
        )
