"""S03: heads of one layer that compute the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leadline.reading.diagnosis.calls import every_call, twin_call
from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.panels import place_text
from leadline.reading.diagnosis.rule import Evidence, Rule, rule
from leadline.record.rows.finding import Finding


@rule(
    "S03",
    "heads-equal",
    severity="serious",
    basis="identity",
    needs=("attention_calls",),
    summary="Compares the queries, keys and values of the heads of a layer, to rounding.",
    why="Equal heads do the work of one: they get the same gradient and stay equal for ever.",
    is_not="Grouped keys and values, which several heads share by design while their queries differ; "
    "queries that are zero throughout, with which some designs start.",
    false_alarms="None known.",
    remedy="Draw the weights of every head by itself, or load each head's own weights.",
    sources=("https://arxiv.org/abs/1706.03762",),
    explains=("weights-low-rank", "attention-uniform"),
    example="heads-equal-one-layer",
)
def heads_equal(case: Case, rule: Rule) -> Iterator[Finding]:
    """Name the layers with equal heads."""
    stacks: dict[str, list[dict[str, Any]]] = {}
    library = case.fact("intention", {}).get("library")
    for one in every_call(case):
        twin = twin_call(case, one)
        by_design = library and twin is not None and twin["equal_heads"]
        if one["equal_heads"] and not by_design:
            stacks.setdefault(one["stack"], []).append(one)
    for stack, calls in stacks.items():
        layers = sorted({one["layer"] for one in calls})
        first = calls[0]
        facts: dict[str, Any] = first["equal_heads"]
        group: list[int] = facts["groups"][0]
        every = len(group) == first["heads"]
        values = bool(facts["values"])
        which = f"all {len(group)} heads" if every else f"heads {', '.join(map(str, group))}"
        yield rule.finding(
            f"Heads are equal: {which} of the attention in {place_text(case, stack, layers)} have the "
            f"same queries and keys{' and values' if values else ''} ({first['module']}).",
            stack=stack,
            layers=layers,
            sublayer="attention",
            head=group[1],
            parameter=first["module"],
            evidence=[
                Evidence(
                    "heads with the same queries and keys", len(group), 1, "vectors of every token"
                )
            ],
            cause="one projection serves all heads (expand or repeat), or one head's weights were copied",
            remedy="Give every head rows of its own in the projections of queries, keys and values.",
            severity=None if values else "warning",
        )
    yield from _one_projection(case, rule)


def _one_projection(case: Case, rule: Rule) -> Iterator[Finding]:
    """Heads that are split before the projections: one small matrix serves all of them."""
    places: dict[str, list[int]] = {}
    first: dict[str, dict[str, Any]] = {}
    for one in case.fact("narrow_projections", ()):
        stack, layer = case.place_of(one["module"])
        if stack is not None:
            places.setdefault(stack, []).append(layer)
            first.setdefault(stack, one)
    for stack, layers in places.items():
        one = first[stack]
        names = [name.rpartition(".")[2] for name in one["names"]]
        yield rule.finding(
            f"All heads of the attention in {place_text(case, stack, layers)} go through the same "
            f"projections, {one['width']} wide: {', '.join(names)} of {one['module']}.",
            stack=stack,
            layers=layers,
            sublayer="attention",
            parameter=one["module"],
            evidence=[
                Evidence(
                    "width of the projections", one["width"], "that of all heads", "the stream"
                )
            ],
            cause="the tokens are split into heads before they are projected",
            remedy="Project the whole width first, then split it into heads.",
        )
