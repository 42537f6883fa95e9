"""S01: parameters that take no part in a pass.

The loss is a random cotangent over every output, and a parameter without a gradient counts only if no
output moves when it is changed. A parameter that the twin does not use either is unused by design of
the class; classes of transformers have such (tokens for masks, biases for segments), a class of one's
own should not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.reading.diagnosis.tensors import names_text, role_of, site_text
from leadline.record.rows.finding import Finding

_SPARE = ("mask", "pooler", "cls_token", "segment", "seg_", "token_type")
"""Names of parameters that serve inputs or outputs which a pass need not have."""


@rule(
    "S01",
    "parameters-unused",
    severity="serious",
    basis="identity",
    needs=("gradients",),
    summary="Parameters that were built but that no output depends on.",
    why="Something that the design names is not done: a second norm that is never called, a projection "
    "whose result is dropped.",
    is_not="Experts that got no token, tokens for masks and padding, poolers, parameters that the class "
    "of a library leaves unused in every model, the originals of PEFT's `modules_to_save`; a gradient that was cut (gradient-cut).",
    false_alarms="A module that is only used in training or with other inputs.",
    remedy="Call the module where the design says, or remove it.",
    sources=("https://github.com/ml-explore/mlx/issues/1636",),
    explains=("norm-missing", "parameters-frozen"),
    example="second-norm-unused",
)
def parameters_unused(case: Case, rule: Rule) -> Iterator[Finding]:
    """One finding for each module that is unused, over all layers that have it."""
    groups: defaultdict[tuple[str, str], list[tuple[int, dict[str, Any]]]] = defaultdict(list)
    for facts in case.fact("gradients", {}).get("none", ()):
        if facts["moves"] or facts["expert"] or _by_design(case, facts):
            continue
        stack, layer, module = _module_of(case, facts["name"])
        groups[stack, module].append((layer, facts))
    for (stack, module), entries in groups.items():
        layers = sorted({layer for layer, _ in entries if layer})
        names = [facts["name"] for _, facts in entries]
        at = site_text(case, stack, layers)
        never = not any(facts["called"] for _, facts in entries)
        bare = all(name == module or name.endswith(f".{module}") for name in names)
        how = "is never called" if never else "is called, and what it returns is not used"
        if bare:  # a parameter of the model or of the block itself: nothing calls it
            how = "is never used"
        yield rule.finding(
            f"{module} of {at} {how}: no output depends on {names_text(names)}.",
            stack=stack if layers else None,
            layers=layers,
            sublayer=role_of(case, stack, layers[0], names[0]) if layers else None,
            parameter=names[0].rpartition(".")[0] or names[0],
            evidence=[
                Evidence("parameters that no output depends on", float(len(names)), 0.0,
                         "a random cotangent over all outputs"),
                Evidence("their module", str(entries[0][1]["module"])),
            ],
            ruled_out=["a cut gradient: no output moves when they are changed"],
            cause="the parameter was built, and nothing in forward that counts reads it" if bare
            else "the module was built and not called in forward, or its result is overwritten",
            remedy=Remedy(f"{'Use' if bare else 'Call'} {module} where the design says so, or remove it."),
        )  # fmt: skip


def _by_design(case: Case, facts: dict[str, Any]) -> bool:
    name = facts["name"].lower()
    if any(word in name for word in _SPARE) or "lora" in name:
        return True
    if _is_original(case, facts["name"]):
        return True
    return facts["twin"] and case.fact("library") in ("transformers", "leadline")


def _is_original(case: Case, name: str) -> bool:
    """Whether PEFT keeps the parameter beside the trained copy that stands for it."""
    parent, inside, _ = f".{name}".rpartition(".original_module.")
    saved = f"{parent}.modules_to_save.".removeprefix(".")
    return bool(inside) and any(one.startswith(saved) for one in case.fact("tensors", {}))


def _module_of(case: Case, name: str) -> tuple[str, int, str]:
    """Stack, layer and the name of the module in its block, of a parameter."""
    module = name.rpartition(".")[0] or name
    for stack, paths in case.fact("rows", {}).items():
        for layer, path in enumerate(paths, start=1):
            if name.startswith(f"{path}."):
                return stack, layer, module[len(path) + 1 :] or name[len(path) + 1 :]
    return "model", 0, module
