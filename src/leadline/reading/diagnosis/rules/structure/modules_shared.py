"""S02: several layers hold one and the same tensor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.reading.diagnosis.tensors import names_text, role_of, site_text
from leadline.record.rows.finding import Finding


@rule(
    "S02",
    "modules-shared",
    severity="serious",
    basis="identity",
    needs=("shared",),
    summary="Layers share one module or tensor although their twin does not.",
    why="The model has as many layers as it has modules: a list that repeats one module is one layer, "
    "called many times, with the gradients of all added up.",
    is_not="Sharing by design: ALBERT, Zamba and others whose twin shares the same tensors; one module "
    "that a loop calls again under one name.",
    false_alarms="A class of one's own without a twin that shares on purpose.",
    remedy="Build one module per layer: `nn.ModuleList(Block() for _ in range(n))`, not `[Block()] * n`.",
    sources=("https://github.com/espnet/espnet/issues/1278",),
    explains=("layers-cloned", "depth-unused", "heads-equal", "unlike-its-family"),
    example="one-module-for-all-layers",
)
def modules_shared(case: Case, rule: Rule) -> Iterator[Finding]:
    """One finding for each set of layers that share something."""
    groups: defaultdict[tuple[str, tuple[int, ...]], list[dict[str, Any]]] = defaultdict(list)
    for shared in case.fact("shared", ()):
        if not shared["twin_shares"]:
            groups[shared["stack"], tuple(shared["layers"])].append(shared)
    for lone in case.fact("repeated", ()):
        if not lone["twin"]:
            yield _lone_finding(rule, lone)
    for (stack, layers), entries in groups.items():
        names = [entry["names"][0] for entry in entries]
        at = site_text(case, stack, list(layers))
        roles = {role_of(case, stack, layers[0], name) for name in names}
        roles.discard(None)
        modules = _modules(case, stack, layers)
        yield rule.finding(
            f"{at[0].upper()}{at[1:]} share what each should have of its own: "
            f"{names_text(names)} {'are' if len(names) > 1 else 'is'} the same object in each.",
            stack=stack,
            layers=layers,
            sublayer=roles.pop() if len(roles) == 1 else None,
            parameter=names[0],
            evidence=[
                Evidence(
                    "modules or tensors that these layers share",
                    float(len(names)),
                    0.0,
                    "the twin" if case.has_twin else "layers of their own",
                )
            ],
            ruled_out=["sharing by design: the twin does not share"] if case.has_twin else [],
            cause="a list that repeats one module: [Block()] * n",
            remedy=Remedy(
                "Build one module per layer: nn.ModuleList(Block() for _ in range(n)).",
                edit={"edit": "unshare-layers", "modules": modules},
            ),
        )


def _lone_finding(rule: Rule, lone: dict[str, Any]) -> Finding:
    calls = lone["calls"]
    return rule.finding(
        f"All {calls} layers of the {lone['stack']} are one module: {lone['list']} holds {lone['module']} "
        f"alone, and it is called {calls} times.",
        stack=lone["stack"],
        layers=range(1, calls + 1),
        parameter=lone["module"],
        evidence=[Evidence(f"modules in {lone['list']}", 1.0, float(calls), "calls of a pass")],
        ruled_out=["a design with one block: a list was made for several"],
        cause="a loop that calls the first element of the list again and again",
        remedy=f"Build {calls} modules in {lone['list']} and call each of them once.",
        severity="warning",
        confidence="likely",
    )


def _modules(case: Case, stack: str, layers: tuple[int, ...]) -> list[str]:
    paths = case.fact("rows", {}).get(stack, ())
    return [paths[layer - 1] for layer in layers if layer <= len(paths)]
