"""T02: an adapter of two factors that no step can move."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.reading.diagnosis.tensors import is_matrix, names_text, site_text
from leadline.record.rows.finding import Finding


@rule(
    "T02",
    "adapter-cannot-learn",
    severity="serious",
    basis="identity",
    needs=("adapters", "gradients"),
    summary="Both factors of an adapter are zero, or neither gets a gradient.",
    why="The gradient of each factor is a product with the other: where both are zero nothing ever "
    "moves; where the product is not added, nothing is trained.",
    is_not="A fresh LoRA adapter: the second factor is 0, so the first has gradient 0 and the second "
    "has not.",
    false_alarms="Adapters that were merged or switched off on purpose and left in the model.",
    remedy="Draw the first factor again; see that the product is added to the output.",
    sources=(
        "https://github.com/locuslab/open-unlearning/issues/178",
        "https://github.com/huggingface/peft/issues/1402",
    ),
    explains=(
        "write-lost",
        "parameters-unused",
        "gradient-cut",
        "weights-zero",
        "write-dead",
        "parameters-frozen",
    ),
    example="lora-both-zero",
)
def adapter_cannot_learn(case: Case, rule: Rule) -> Iterator[Finding]:
    """Adapters by their fault; then pairs of zero matrices with gradient 0 of any name."""
    faults: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    pairs: list[dict[str, Any]] = case.fact("adapters", [])
    for pair in pairs:
        fault = _fault(pair)
        if fault:
            faults[fault].append(pair)
    for fault, entries in faults.items():
        names = [entry["first"] for entry in entries]
        yield _finding(case, rule, names, fault, len(pairs))
    if not pairs:
        stuck = _stuck(case)
        for names in stuck.values():
            yield _finding(case, rule, names, "both factors are 0, and so are their gradients", 0)


def _fault(pair: dict[str, Any]) -> str:
    first, second = pair["first_gradient"], pair["second_gradient"]
    if pair["first_zero"] and pair["second_zero"]:
        return "both factors are 0, and so are their gradients"
    if first is None and second is None:
        return "no output depends on them"
    if not first and not second:
        return "both gradients are 0"
    return "" if pair["trainable"] else "neither factor requires a gradient"


def _stuck(case: Case) -> dict[str, list[str]]:
    """Two zero matrices or more with gradient 0 in one module."""
    zero = set(case.fact("gradients", {}).get("zero", ()))
    by_parent: defaultdict[str, list[str]] = defaultdict(list)
    for place, share in case.values("weights.zeros").items():
        name = case.parameter(place)
        if share == 1.0 and name in zero and is_matrix(case, place):
            by_parent[name.rpartition(".")[0].rpartition(".")[0]].append(name)
    return {parent: names for parent, names in by_parent.items() if len(names) > 1}


def _finding(case: Case, rule: Rule, names: list[str], fault: str, pairs: int) -> Finding:
    stack, layers = "", set[int]()
    for name in names:
        for one, paths in case.fact("rows", {}).items():
            for layer, path in enumerate(paths, start=1):
                if name.startswith(f"{path}."):
                    stack, layers = one, layers | {layer}
    at = site_text(case, stack, sorted(layers)) if stack else "the model"
    return rule.finding(
        f"The adapters of {at} cannot learn: {fault} ({names_text(names)}).",
        stack=stack or None,
        layers=layers,
        parameter=names[0],
        evidence=[
            Evidence("adapters that cannot learn", float(len(names)), 0.0,
                     f"{pairs} adapters" if pairs else "zero matrices with gradient 0"),
            Evidence("fault", fault),
        ],
        ruled_out=["a fresh adapter: of that only one factor is 0"],
        cause="the first factor was never drawn (a model built without values), or the product is "
        "not added to the output",
        remedy=Remedy(
            "Draw the first factor of every adapter again, and leave the second at 0.",
            edit={"edit": "redraw-tensors", "parameters": names, "std": 0.02}
            if "0, and" in fault
            else {},
        ),
    )  # fmt: skip
