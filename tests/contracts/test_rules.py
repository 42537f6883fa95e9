"""What every rule of the diagnosis must have, whoever wrote it."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from leadline.instruments.passes.ablation import BLOCK, SUBLAYER
from leadline.instruments.passes.probe import PROBES
from leadline.instruments.visit.check import CHECKS
from leadline.reading.diagnosis.rule import BASES, RULES, Rule
from leadline.record.rows.finding import SEVERITIES
from leadline.testing.faults import FAULTS
from leadline.testing.faults.wild import wild_faults

RULE_LIST = [rule for _, rule in RULES.items()]
NAMES = set(RULES.names())
STATES = {"anatomy", "twin", "reference", "twin or natural text"}
"""What a case is asked for beside quantities and facts."""
OF_EVERY_VISIT = {"dropouts", "intended"}
"""Facts that a visit notes itself, before any check."""
WITHOUT_EXAMPLE = {
    "attention-sinks": "a note: healthy trained models have them",
    "logit-drift": "a note: predictions stay the same",
    "post-norm-deep": "a note about a design",
    "gradient-exploding": "an effect of many faults",
    "lanes-equal": "needs a trained model with lanes",
    "experts-unused": "a note, and no host has experts",
    "unlike-its-family": "an effect of many faults",
    "does-not-learn": "an effect of many faults",
}
"""Rules that no fault of the zoo is named after."""


def _known_needs() -> set[str]:
    quantities = [q for _, probe in PROBES.items() for q in probe.quantities] + [BLOCK, SUBLAYER]
    quantities += [q for _, check in CHECKS.items() for q in check.quantities]
    facts = {fact for _, check in CHECKS.items() for fact in check.facts}
    return {quantity.name for quantity in quantities} | facts | STATES | OF_EVERY_VISIT


def _causes_by_fault() -> dict[str, tuple[str, ...]]:
    causes = {name: fault.causes for name, fault in FAULTS.items()}
    return causes | {fault.name: fault.causes for fault in wild_faults("seen")}


@pytest.mark.parametrize("rule", RULE_LIST, ids=lambda rule: rule.code)
def test_a_rule_says_everything_that_its_page_tells(rule: Rule) -> None:
    assert re.fullmatch(r"[A-Z]\d\d", rule.code)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
    assert rule.severity in SEVERITIES
    assert rule.basis in BASES
    for text in (rule.summary, rule.why, rule.is_not, rule.false_alarms, rule.remedy):
        assert text.endswith((".", "?")), text
    assert rule.sources and all(source.strip() for source in rule.sources)


def test_no_two_rules_have_one_code() -> None:
    assert max(Counter(rule.code for rule in RULE_LIST).values()) == 1


@pytest.mark.parametrize("rule", RULE_LIST, ids=lambda rule: rule.code)
def test_a_rule_explains_rules_that_exist_and_not_itself(rule: Rule) -> None:
    assert set(rule.explains) <= NAMES - {rule.name}
    assert len(set(rule.explains)) == len(rule.explains)


@pytest.mark.parametrize("rule", RULE_LIST, ids=lambda rule: rule.code)
def test_somebody_measures_what_a_rule_needs(rule: Rule) -> None:
    assert rule.needs
    assert set(rule.needs) <= _known_needs()


def test_the_example_of_a_rule_is_a_fault_about_which_it_is_right() -> None:
    causes = _causes_by_fault()
    for rule in RULE_LIST:
        assert bool(rule.example) != (rule.name in WITHOUT_EXAMPLE), rule.name
        if rule.example:
            assert rule.name in causes[rule.example], (rule.name, rule.example)


def test_the_causes_of_faults_are_rules() -> None:
    assert {cause for names in _causes_by_fault().values() for cause in names} <= NAMES
