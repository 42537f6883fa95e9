"""Run the example of a rule: diagnose it, apply the remedy to a copy, and diagnose the copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadline.errors import InputError, LeadlineError
from leadline.instruments.visit.diagnose import diagnose
from leadline.instruments.visit.remedies.apply import prove_remedy
from leadline.instruments.visit.visit import visit
from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.examples.example import RemedyTrial, RuleExample
from leadline.reading.diagnosis.words import finding_json
from leadline.testing.faults.examples.curve import (
    example_curve,
    layer_strip,
    numbers_apart,
    rounded,
    token_strips,
)
from leadline.testing.faults.examples.sick_models import SickModel, sick_models_of

if TYPE_CHECKING:
    from torch import nn

    from leadline.reading.diagnosis.diagnosis import Diagnosis
    from leadline.reading.diagnosis.rule import Rule
    from leadline.record.rows.finding import Finding

__all__ = ["run_example"]


def run_example(rule: Rule, kept: RuleExample | None = None) -> RuleExample:
    """Show a rule at work, in the first model whose first finding it is, or else in which it speaks.

    The model of an example that is `kept` comes first and will do if the rule still speaks.
    """
    best: tuple[int, SickModel, Diagnosis, Finding, str] | None = None
    prefer = ("", "") if kept is None else (kept.fault, kept.host)
    for specimen in sick_models_of(rule, prefer):
        diagnosis = diagnose(specimen.model, specimen.inputs, **specimen.options)
        rank, finding, by = _finding_of(diagnosis, rule)
        if finding is not None and (best is None or rank < best[0]):
            best = rank, specimen, diagnosis, finding, by
        same = kept is not None and (specimen.fault, specimen.host) == prefer
        if best is not None and (best[0] == 0 or same):
            break
    if best is None:
        raise InputError(
            f"{rule.code} {rule.name} finds nothing in its example {rule.example!r}: name another "
            "fault, or add a specimen in testing/faults/examples."
        )
    return _described(rule, *best[1:], first=best[0] == 0)


def _finding_of(diagnosis: Diagnosis, rule: Rule) -> tuple[int, Finding | None, str]:
    """(place among the findings, the finding, the code of what explains it)."""
    for place, finding in enumerate(diagnosis.findings):
        if finding.code == rule.code:
            return place, finding, ""
    for by, finding in diagnosis.explained:
        if finding.code == rule.code:
            return len(diagnosis.findings), finding, by
    return len(diagnosis.findings), None, ""


def _described(
    rule: Rule,
    specimen: SickModel,
    diagnosis: Diagnosis,
    finding: Finding,
    explained_by: str,
    *,
    first: bool,
) -> RuleExample:
    sick = Case(diagnosis.record)
    healthy = None
    if specimen.healthy is not None:
        healthy = Case(visit(specimen.healthy, specimen.inputs))
    title, strips = "", ()
    if "token_panels" in rule.needs:
        title, strips = token_strips(sick, healthy)
    curve = None if strips else example_curve(sick, healthy, rule, finding)
    if not strips and curve is None and not numbers_apart(finding):
        curve = example_curve(sick, healthy, rule, finding, general=True)
        if curve is None:
            title, strips = layer_strip(sick, finding)
    return RuleExample(
        rule.code,
        specimen.fault,
        specimen.words,
        _model_words(specimen, sick),
        specimen.host,
        specimen.seed,
        _means(specimen),
        _rounded_json(finding_json(finding)),
        tuple(
            one.code
            for one in diagnosis.findings
            if one.severity != "note" and one.code != rule.code
        ),
        first,
        explained_by,
        _trial(specimen, diagnosis, finding),
        specimen.thread,
        curve,
        strips,
        title,
    )


def _model_words(specimen: SickModel, case: Case) -> str:
    depths = {stack: case.depth(stack) for stack in case.stacks or case.fact("rows", {})}
    layers = " and ".join(f"{depth} {stack} layers" for stack, depth in depths.items() if depth)
    state = "trained" if specimen.trained else "weights as they are drawn"
    name = type(specimen.model).__name__
    return ", ".join(part for part in (name, layers, state) if part)


def _means(specimen: SickModel) -> str:
    words: list[str] = []
    for key, value in specimen.options.items():
        if key == "reference":
            words.append("--reference (the model without the fault)")
        else:
            words.append(f"--{key}" if value is True else f"--{key} {value!r}")
    return ", ".join(words)


def _trial(specimen: SickModel, before: Diagnosis, finding: Finding) -> RemedyTrial:
    edit: dict[str, Any] = dict(finding.remedy.get("edit") or {})
    if not edit:
        return RemedyTrial("by hand")

    def again(model: nn.Module) -> Diagnosis:
        return diagnose(model, specimen.inputs, **specimen.options)

    try:
        proof = prove_remedy(specimen.model, before, finding, again)
    except LeadlineError as error:
        return RemedyTrial("failed", edit, why=str(error))
    left = tuple(dict.fromkeys(one.code for one in proof.after.findings if one.severity != "note"))
    new = tuple(one.verdict for one in proof.new)
    return RemedyTrial("gone" if proof.gone else "still there", _rounded_json(edit), new, left)


def _rounded_json(value: Any) -> Any:
    """The same JSON with numbers in four digits."""
    if isinstance(value, float):
        return rounded(value)
    if isinstance(value, dict):
        return {key: _rounded_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded_json(one) for one in value]
    return value
