"""A diagnosis as SARIF 2.1.0, the form in which code hosts and editors read findings.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html. Findings are about modules and tensors,
not about lines of files, so their places are logical locations: the path of the parameter or module
where there is one, otherwise stack and layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadline import __version__
from leadline.reading.diagnosis.page import page_file
from leadline.reading.diagnosis.rule import RULES
from leadline.reading.diagnosis.words import finding_json

if TYPE_CHECKING:
    from leadline.reading.diagnosis.diagnosis import Diagnosis
    from leadline.reading.diagnosis.rule import Basis, Rule
    from leadline.record.rows.finding import Finding, Severity

__all__ = ["help_address", "sarif_log"]

_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_HOME = "https://github.com/leadline/leadline"
_LEVELS: dict[Severity, str] = {"serious": "error", "warning": "warning", "note": "note"}
_PRECISION: dict[Basis, str] = {
    "identity": "very-high",
    "twin": "high",
    "neighbours": "high",
    "law": "medium",
    "outcome": "medium",
    "hint": "low",
}
"""How often a rule is right, in the words that code hosts read, from what it rests on."""


def help_address(rule: Rule) -> str:
    """Where the page of a rule is on the web."""
    return f"{_HOME}/blob/HEAD/docs/rules/{page_file(rule)}"


def sarif_log(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the log: one run, with the rules that looked and a result for each finding."""
    looked = set(diagnosis.coverage.looked)
    rules = sorted(
        (rule for _, rule in RULES.items() if rule.code in looked), key=lambda rule: rule.code
    )
    at = {rule.code: number for number, rule in enumerate(rules)}
    run = {
        "tool": {
            "driver": {
                "name": "Leadline",
                "version": __version__,
                "semanticVersion": __version__,
                "informationUri": _HOME,
                "rules": [_descriptor(rule) for rule in rules],
            }
        },
        "invocations": [{"executionSuccessful": True}],
        "results": [_result(finding, at) for finding in diagnosis.findings],
        "properties": {
            "healthy": diagnosis.healthy,
            "coverage": diagnosis.coverage.to_json(),
        },
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _descriptor(rule: Rule) -> dict[str, Any]:
    texts = [rule.summary, rule.why, rule.remedy]
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": " ".join(text for text in (rule.summary, rule.why) if text)},
        "help": {"text": "\n\n".join(text for text in texts if text)},
        "helpUri": help_address(rule),
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"precision": _PRECISION[rule.basis], "basis": rule.basis},
    }


def _result(finding: Finding, at: dict[str, int]) -> dict[str, Any]:
    remedy = finding.remedy.get("words", "")
    message = f"{finding.verdict} {remedy}".strip()
    result: dict[str, Any] = {
        "level": _LEVELS[finding.severity],
        "message": {"text": message},
        "properties": finding_json(finding),
    }
    if finding.code:
        result["ruleId"] = finding.code
    if finding.code in at:
        result["ruleIndex"] = at[finding.code]
    places = _logical_locations(finding)
    if places:  # one location each: a fault of several layers is put right in all of them
        result["locations"] = [{"logicalLocations": [place]} for place in places]
    return result


def _logical_locations(finding: Finding) -> list[dict[str, str]]:
    """The parameter or module, or else every layer."""
    if finding.parameter:
        return [_location(finding.parameter, "member")]
    stack = finding.stack or "model"
    role = f".{finding.sublayer}" if finding.sublayer else ""
    return [_location(f"{stack}.layer{layer}{role}", "module") for layer in finding.layers]


def _location(path: str, kind: str) -> dict[str, str]:
    return {"name": path.rpartition(".")[2], "fullyQualifiedName": path, "kind": kind}
