"""The page of a rule, in words: what it looks for, why it is bad, what it is not, what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline.errors import UnknownName
from leadline.reading.diagnosis.examples.example import RuleExample, kept_examples
from leadline.reading.diagnosis.examples.words import example_sentences, trial_sentences
from leadline.reading.diagnosis.rule import RULES

if TYPE_CHECKING:
    from leadline.reading.diagnosis.rule import Rule

__all__ = ["EXAMPLE", "example_of", "find_rule", "page_file", "rule_entries"]

EXAMPLE = "Example"
"""The title of the entry that a picture stands under."""

_RESTS_ON = {
    "identity": "an identity that holds or does not",
    "twin": "a twin with random weights, measured on the same inputs",
    "neighbours": "the nearest layers",
    "law": "the law of the design that the anatomy found",
    "outcome": "what comes out of the model",
    "hint": "a pattern that often, and not always, means it",
}


def page_file(rule: Rule) -> str:
    """The name of the file of a rule's page, without its folder."""
    return f"{rule.code}-{rule.name}.md"


def example_of(rule: Rule) -> RuleExample | None:
    """The example that is kept of a rule; none of a rule that a plug-in brought."""
    return kept_examples().get(rule.code)


def rule_entries(rule: Rule) -> list[tuple[str, str]]:
    """Return titles with texts, in the order of the page; what a rule does not say is left out.

    A text has paragraphs, parted by empty lines.
    """
    example = example_of(rule)
    if example is None:
        told = [f"The fault {rule.example} of leadline.testing.faults."] if rule.example else []
        tried: list[str] = []
    else:
        told, tried = example_sentences(example), trial_sentences(example)
    entries = [
        ("What it looks for", rule.summary),
        ("Why it is bad", rule.why),
        ("What it is not", rule.is_not),
        (EXAMPLE, "\n\n".join(told)),
        ("Known false alarms", rule.false_alarms),
        ("Remedy", "\n\n".join(text for text in (rule.remedy, *tried) if text)),
        ("Severity", f"{rule.severity}; what is expected comes from {_RESTS_ON[rule.basis]}"),
        ("Needs", ", ".join(rule.needs)),
        ("Explains", ", ".join(rule.explains)),
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
