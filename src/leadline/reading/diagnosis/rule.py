"""A rule looks at a record for one illness: what it needs, what it asks, how it is explained.

To add a rule, put one file into `rules/` and one decorator into it:

    @rule("N05", "norm-eps-large", needs=("norm.eps",), ...)
    def norm_eps_large(case: Case) -> Iterator[Finding]: ...

A rule reads a `Case`, the record in the form that rules ask it, and never a model. What it expects is
never an absolute number unless physics gives it: it comes from neighbours in depth, from a twin of the
same configuration with random weights, from the law of the design, or from a reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from leadline.catalog import Catalog
from leadline.record.rows.finding import Confidence, Finding, Severity

if TYPE_CHECKING:
    from leadline.reading.diagnosis.case import Case

__all__ = ["BASES", "RULES", "Basis", "Evidence", "Remedy", "Rule", "rule"]

Basis = Literal["identity", "twin", "neighbours", "law", "outcome", "hint"]
BASES: tuple[Basis, ...] = ("identity", "twin", "neighbours", "law", "outcome", "hint")
"""What a rule's expectation rests on, the surest first: findings are ranked by it."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number that shows a finding, beside what was expected and where that comes from."""

    what: str
    value: float | str
    expected: float | str = ""
    source: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "what": self.what,
            "value": self.value,
            "expected": self.expected,
            "source": self.source,
        }


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to do, in words, and as an edit where it can be applied to a copy.

    `safe` remedies change neither the function nor trained weights. `edit` names an entry of the
    catalog of edits with its arguments: {"edit": "scale-tensor", "parameter": ..., "factor": ...}.
    """

    words: str
    safe: bool = False
    edit: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"words": self.words, "safe": self.safe, "edit": dict(self.edit)}


@dataclass(frozen=True)
class Rule:
    """One rule with everything that its page says.

    `needs` are names of quantities, or of facts of a visit; a rule whose needs a record lacks
    does not look, and the coverage says so. `explains` names rules whose findings at the same place
    follow from this one, so that one fault does not give five alarms.
    """

    code: str
    name: str
    severity: Severity
    basis: Basis
    needs: tuple[str, ...]
    look: Callable[[Case], Iterable[Finding]]
    summary: str
    """What it looks for, in one sentence."""
    why: str
    """Why it is bad."""
    is_not: str
    """What it is not: designs and inputs that look alike and are healthy."""
    false_alarms: str
    """When it is known to be wrong."""
    remedy: str
    """What to do, and what shows that it helps."""
    sources: tuple[str, ...]
    explains: tuple[str, ...] = ()
    example: str = ""
    """The fault of the zoo that the page shows."""

    def finding(
        self,
        verdict: str,
        *,
        layers: Iterable[int] = (),
        stack: str | None = None,
        sublayer: str | None = None,
        head: int | None = None,
        parameter: str | None = None,
        evidence: Sequence[Evidence] = (),
        ruled_out: Sequence[str] = (),
        cause: str = "",
        remedy: Remedy | str = "",
        confidence: Confidence | None = None,
        severity: Severity | None = None,
        quantity: str | None = None,
    ) -> Finding:
        """Return a finding of this rule."""
        words = Remedy(remedy) if isinstance(remedy, str) else remedy
        place = {
            "stack": stack,
            "layers": sorted(set(layers)),
            "sublayer": sublayer,
            "head": head,
            "parameter": parameter,
        }
        sure: Confidence = "certain" if self.basis == "identity" else "likely"
        details = {key: value for key, value in place.items() if value not in (None, [])} | {
            "evidence": [one.to_json() for one in evidence],
            "ruled_out": list(ruled_out),
            "cause": cause,
            "remedy": words.to_json(),
            "confidence": confidence or sure,
            "basis": self.basis,
        }
        return Finding(
            verdict,
            quantity=quantity,
            severity=severity or self.severity,
            code=self.code,
            name=self.name,
            details=details,
        )


RULES: Catalog[Rule] = Catalog(
    "rule", package="leadline.reading.diagnosis.rules", group="leadline.rules"
)
"""Every rule by its name."""


def rule(
    code: str,
    name: str,
    *,
    severity: Severity,
    basis: Basis,
    needs: tuple[str, ...],
    summary: str,
    why: str,
    is_not: str = "",
    false_alarms: str = "",
    remedy: str = "",
    sources: tuple[str, ...] = (),
    explains: tuple[str, ...] = (),
    example: str = "",
) -> Callable[[Callable[[Case, Rule], Iterable[Finding]]], Rule]:
    """Return the decorator that makes a function (case, rule) -> findings a rule of the catalog."""

    def enter(look: Callable[[Case, Rule], Iterable[Finding]]) -> Rule:
        made = Rule(
            code=code,
            name=name,
            severity=severity,
            basis=basis,
            needs=needs,
            look=lambda case: look(case, made),
            summary=summary,
            why=why,
            is_not=is_not,
            false_alarms=false_alarms,
            remedy=remedy,
            sources=sources,
            explains=explains,
            example=example,
        )
        return RULES.register(name)(made)

    return enter
