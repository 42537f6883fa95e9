"""S04: outputs depend on a parameter or on the stream, and autograd does not see it.

Thresholds: agreement of a block's gradient with its slope below 0.9. Over 188 models of the zoo, fresh
and with redrawn weights, it was between 0.993 and 1.01.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.reading.diagnosis.tensors import names_text, role_of, site_text
from leadline.record.rows.finding import Finding

AGREEMENT = 0.9


@rule(
    "S04",
    "gradient-cut",
    severity="serious",
    basis="identity",
    needs=("gradients",),
    summary="Outputs move with a parameter or with the stream, but no gradient comes back.",
    why="What gets no gradient does not learn, and below a cut nothing does.",
    is_not="Parameters that no output depends on (parameters-unused), parameters that are frozen on "
    "purpose, corrections of a router that the twin leaves out as well.",
    false_alarms="Rounding that passes gradients straight through, where its slope is not its gradient.",
    remedy="Remove `.detach()`, `torch.no_grad()`, `.data` or `.item()` on the way.",
    sources=("https://github.com/pytorch/pytorch/issues/7617",),
    explains=(
        "gradient-vanishing", "parameters-unused", "gradient-exploding", "adapter-cannot-learn",
        "does-not-learn", "residual-from-wrong-point",
    ),
    example="block-input-detached",
)  # fmt: skip
def gradient_cut(case: Case, rule: Rule) -> Iterator[Finding]:
    """Blocks whose gradient does not agree with what they do; else parameters without gradient."""
    facts = case.fact("gradients", {})
    entries = facts.get("none", ())
    if entries and len(entries) == facts["parameters"] and any(one["moves"] for one in entries):
        yield _no_gradient(case, rule, len(entries))
        return
    blocks = _cut_blocks(case)
    for stack, layers in blocks.items():
        values = case.lines("gradient.agreement")[stack, "block"]
        worst = min(layers, key=lambda layer: values[layer])
        at = site_text(case, stack, layers)
        lost = "no gradient" if values[worst] == 0 else "only a part of the gradient"
        yield rule.finding(
            f"The gradient is cut in {at}: {lost} comes back through {case.module(stack, worst)}.",
            stack=stack,
            layers=layers,
            sublayer=_cut_role(case, stack, layers),
            parameter=case.module(stack, worst),
            evidence=[
                Evidence(
                    f"gradient over slope of layer {worst}",
                    values[worst],
                    1.0,
                    "what the block does to a small change",
                )
            ],
            ruled_out=["small gradients: the slope of the block is not small"],
            cause="a detach(), no_grad(), .data or .item() inside of the block",
            remedy=Remedy(f"Remove what cuts the graph in {case.module(stack, worst)}."),
            quantity="gradient.agreement",
        )
    yield from _cut_parameters(case, rule, covered=blocks)


def _no_gradient(case: Case, rule: Rule, count: int) -> Finding:
    """No parameter gets a gradient, whether or not the twin's do: the code is the same."""
    evidence = [
        Evidence("parameters with a gradient", 0.0, float(count),
                 "a random cotangent over all outputs")
    ]  # fmt: skip
    if case.fact("no_gradients"):
        evidence.append(Evidence("backward passes that the loss allows", 0.0, 1.0, "one pass"))
    return rule.finding(
        f"The gradient is cut: none of the {count} parameters gets one, although the outputs depend on them.",
        evidence=evidence,
        ruled_out=["frozen parameters: all were asked for gradients"],
        cause="the outputs are detached, or the forward runs under no_grad() or inference_mode()",
        remedy=Remedy("Remove detach() or no_grad() around the forward."),
    )


def _cut_blocks(case: Case) -> dict[str, list[int]]:
    cut: defaultdict[str, list[int]] = defaultdict(list)
    for (stack, _), line in case.lines("gradient.agreement").items():
        cut[stack] += [layer for layer, value in line.items() if value < AGREEMENT]
    return {stack: layers for stack, layers in cut.items() if layers}


def _cut_role(case: Case, stack: str, layers: list[int]) -> str | None:
    """The one sublayer whose parameters get no gradient, where it is one."""
    roles = {
        role_of(case, stack, layers[0], facts["name"])
        for facts in case.fact("gradients", {}).get("none", ())
        if facts["name"].startswith(f"{case.module(stack, layers[0])}.")
    }
    roles.discard(None)
    return roles.pop() if len(roles) == 1 else None


def _cut_parameters(case: Case, rule: Rule, covered: dict[str, list[int]]) -> Iterator[Finding]:
    entries = [
        facts
        for facts in case.fact("gradients", {}).get("none", ())
        if facts["moves"] and not facts["twin"] and not facts["expert"]
        and "lora" not in facts["name"].lower()
    ]  # fmt: skip
    if not entries or covered:
        return
    place = _places(case, entries)
    names = [facts["name"] for facts in entries]
    for stack, layers in place.items():
        inside = [name for name in names if _layer(case, stack, name) or not layers]
        roles = {role_of(case, stack, at, name) for at in layers[:1] for name in inside}
        roles.discard(None)
        at = site_text(case, stack, layers)
        yield rule.finding(
            f"The gradient is cut: {names_text(inside)} of {at} move the outputs and get no gradient.",
            stack=stack if layers else None,
            layers=layers,
            sublayer=next(iter(roles)) if len(roles) == 1 else None,
            parameter=inside[0],
            evidence=[
                Evidence("parameters without gradient that move an output", float(len(names)), 0.0,
                         "a random cotangent over all outputs")
            ],
            ruled_out=["unused parameters: an output moves when they are changed"],
            cause="a detach(), no_grad(), .data or .item() between these parameters and the output",
            remedy=Remedy("Remove what cuts the graph after them."),
        )  # fmt: skip


def _places(case: Case, entries: list[dict[str, Any]]) -> dict[str, list[int]]:
    """The layers of parameters by stack; a stack without layers stands for what is outside."""
    places: defaultdict[str, set[int]] = defaultdict(set)
    for facts in entries:
        for stack in case.fact("rows", {}):
            layer = _layer(case, stack, facts["name"])
            if layer:
                places[stack].add(layer)
    if not places:
        return {"model": []}
    # A cut at the input of a block leaves all that comes before it without a gradient.
    return {stack: sorted(layers) for stack, layers in places.items()}


def _layer(case: Case, stack: str, name: str) -> int:
    for layer, path in enumerate(case.fact("rows", {}).get(stack, ()), start=1):
        if name.startswith(f"{path}."):
            return layer
    return 0
