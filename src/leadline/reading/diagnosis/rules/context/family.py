"""X03: the configuration names a family, and the model does not do what that family does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.designs import FamilyDesign, design_of
from leadline.reading.diagnosis.found_design import StackDesign, stack_designs
from leadline.reading.diagnosis.rule import Evidence, Remedy, Rule, rule
from leadline.reading.diagnosis.words import layers_text
from leadline.record.rows.finding import Finding


@rule(
    "X03",
    "unlike-its-family",
    severity="warning",
    basis="law",
    needs=("design", "anatomy"),
    summary=(
        "A model whose configuration names a family (model_type) and whose norms, branches or factors "
        "are not those of the family's published design."
    ),
    why="Weights of a family mean nothing in another design: the same numbers compute something else.",
    is_not="Not a judgement on designs: families that are not in the table are not looked at.",
    false_alarms="A variant that keeps the model type of the design it varies.",
    remedy="Compare the block's forward with the family's.",
    sources=("the paper of each family, named in the finding",),
)
def unlike_its_family(case: Case, rule: Rule) -> Iterator[Finding]:
    """Compare every stack of a single-stack family with the table of designs."""
    facts: Mapping[str, Any] = case.design
    name = facts.get("model_type")
    design = design_of(str(name)) if name else None
    if design is None:
        return
    settings = facts.get("settings", {})
    for stack in stack_designs(case):
        for what, value, expected, layers in _differences(stack, design, settings):
            every = len(set(layers)) == stack.depth
            where = f" in {layers_text(layers, stack.depth)}" if layers and not every else ""
            yield rule.finding(
                f"The {stack.name} is unlike its family '{name}': {what} is {value}{where}, not "
                f"{expected}.",
                stack=stack.name,
                layers=() if every else layers,
                evidence=[Evidence(what, value, expected, design.source)],
                cause="the code differs from the published design, or the model type is wrong",
                remedy=Remedy(f"Compare the forward of the blocks with that of {name}."),
            )


def _differences(
    stack: StackDesign, design: FamilyDesign, settings: Mapping[str, Any]
) -> Iterator[tuple[str, str | float, str | float, list[int]]]:
    """(what, value, expected, layers) of each difference."""
    if design.placement is not None:
        odd = stack.layers_without(design.placement)
        if odd:
            layers = [layer for layer, _ in odd]
            yield "placement of norms", odd[0][1].placement, design.placement, layers
    parallel = design.parallel
    if design.parallel_setting and design.parallel_setting in settings:
        parallel = bool(settings[design.parallel_setting])
    if parallel is not None and stack.parallel is not None and stack.parallel != parallel:
        words = {True: "parallel", False: "one after the other"}
        yield "order of branches", words[stack.parallel], words[parallel], []
    if design.causal is not None and stack.causal is not None and stack.causal != design.causal:
        words = {True: "causal", False: "not causal"}
        yield "attention", words[stack.causal], words[design.causal], []
    kinds = stack.norms - {"other"}
    if design.norm is not None and kinds and set(kinds) != {design.norm}:
        yield "kind of norm", "/".join(sorted(kinds)), design.norm, []
    if design.final_norm and stack.final_norm is False:
        yield "final norm", "missing", "one norm behind the blocks", []
    expected = settings.get(design.gain_setting, 1.0) if design.gain_setting else None
    odd_gains = sorted(
        gain for gain in stack.gains if expected is not None and abs(gain - expected) > 1e-4
    )
    if odd_gains:
        yield "factor of updates", odd_gains[0], float(expected or 0.0), []
