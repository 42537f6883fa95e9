"""The page of a rule, in words: what it looks for, why it is bad, what it is not, what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline.errors import UnknownName
from leadline.reading.diagnosis.rule import RULES

if TYPE_CHECKING:
    from leadline.reading.diagnosis.rule import Rule

__all__ = ["find_rule", "rule_entries"]

_RESTS_ON = {
    "identity": "an identity that holds or does not",
    "twin": "a twin with random weights, measured on the same inputs",
    "neighbours": "the nearest layers",
    "law": "the law of the design that the anatomy found",
    "outcome": "what comes out of the model",
    "hint": "a pattern that often, and not always, means it",
}


def rule_entries(rule: Rule) -> list[tuple[str, str]]:
    """Return titles with texts, in the order of the page; what a rule does not say is left out."""
    entries = [
        ("What it looks for", rule.summary),
        ("Why it is bad", rule.why),
        ("What it is not", rule.is_not),
        ("Known false alarms", rule.false_alarms),
        ("Remedy", rule.remedy),
        ("Severity", f"{rule.severity}; what is expected comes from {_RESTS_ON[rule.basis]}"),
        ("Needs", ", ".join(rule.needs)),
        ("Explains", ", ".join(rule.explains)),
        ("Example", rule.example and f"the fault {rule.example} of leadline.testing.faults"),
        ("Sources", "; ".join(rule.sources)),
    ]
    return [(title, text) for title, text in entries if text]


def find_rule(word: str) -> Rule:
    """Return the rule with this code or name, or raise `UnknownName` with the nearest."""
    for name, rule in RULES.items():
        if word == name or word.upper() == rule.code:
            return rule
    known = [known for name, rule in RULES.items() for known in (rule.code, name)]
    raise UnknownName("rule", word, known)
