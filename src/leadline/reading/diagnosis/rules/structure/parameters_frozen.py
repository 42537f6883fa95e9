"""S05: parameters that do not require a gradient, a note."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from leadline.reading.diagnosis.case import OUTSIDE, Case
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.reading.diagnosis.tensors import names_text, site_text
from leadline.record.rows.finding import Finding


@rule(
    "S05",
    "parameters-frozen",
    severity="note",
    basis="identity",
    needs=("frozen",),
    summary="Some parameters do not require a gradient.",
    why="They stay as they are in training; that is often meant, and sometimes forgotten.",
    is_not="Models that are frozen as a whole, for use; constants that a class never trains.",
    false_alarms="Fine-tuning of a part, where freezing is the point.",
    remedy="`parameter.requires_grad_(True)` before the optimizer is built.",
    sources=("https://github.com/pytorch/pytorch/issues/1266",),
    example="layer-frozen",
)
def parameters_frozen(case: Case, rule: Rule) -> Iterator[Finding]:
    """One note for each stack that has some, and not all, of its parameters frozen."""
    facts = case.fact("frozen", {})
    names: list[str] = facts.get("names", [])
    names = [name for name in names if "position" not in name or len(names) > 2]
    if not names or len(names) >= facts["parameters"]:
        return
    groups: defaultdict[str, dict[str, set[int]]] = defaultdict(dict)
    for name in names:
        stack, layer = _layer_of(case, name)
        groups[stack].setdefault(name, set()).add(layer)
    for stack, entries in groups.items():
        layers = sorted({layer for found in entries.values() for layer in found if layer})
        at = site_text(case, stack, layers)
        listed = list(entries)
        yield rule.finding(
            f"{len(listed)} parameter{'s' if len(listed) > 1 else ''} of {at} "
            f"{'are' if len(listed) > 1 else 'is'} frozen: {names_text(listed)}.",
            stack=None if stack == OUTSIDE else stack,
            layers=layers,
            parameter=listed[0],
            evidence=[
                Evidence("values that are frozen", float(facts["values"]), 0.0,
                         f"{facts['all']:,} in all"),
            ],
            cause="requires_grad is False",
            remedy=Remedy(
                "Let them require a gradient before the optimizer is built, if they should learn.",
                safe=True,
                edit={"edit": "require-gradient", "parameters": listed},
            ),
        )  # fmt: skip


def _layer_of(case: Case, name: str) -> tuple[str, int]:
    for stack, paths in case.fact("rows", {}).items():
        for layer, path in enumerate(paths, start=1):
            if name.startswith(f"{path}."):
                return stack, layer
    return OUTSIDE, 0
