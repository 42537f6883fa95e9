"""How rules are asked: one that fails stops nothing, one that is ignored still explains."""

from dataclasses import replace

import pytest

from leadline.errors import InputError
from leadline.reading.diagnosis.diagnosis import ask_rules, choose_rules
from leadline.reading.diagnosis.rule import RULES
from tests.synthetic import gpt2_record
from tests.visits import gpt2, visited


def test_a_rule_that_fails_is_told_in_the_coverage(monkeypatch: pytest.MonkeyPatch) -> None:
    one = dict(RULES.items())["gradient-vanishing"]

    def fail(case):
        raise ZeroDivisionError("division by zero")

    broken = replace(one, look=fail)
    monkeypatch.setattr(RULES, "_entries", {**RULES._entries, one.name: broken})  # pyright: ignore[reportPrivateUsage]
    coverage = ask_rules(gpt2_record()).coverage
    why = "the rule failed on this record (ZeroDivisionError: division by zero)"
    assert (one.code, why) in coverage.could_not
    assert one.code not in coverage.looked
    assert coverage.looked


def test_an_ignored_rule_still_explains_what_follows_from_it() -> None:
    import torch

    model = gpt2(6)
    with torch.no_grad():
        model.transformer.h[2].attn.c_attn.weight.mul_(100)
    record = visited(model)
    whole = ask_rules(record)
    assert whole.findings[0].code == "W02"
    assert [
        one.code for one in ask_rules(record, ignore=["W02"]).findings if one.severity != "note"
    ] == []


def test_codes_may_stand_in_one_text_and_at_least_one_rule_is_left() -> None:
    assert [one.code for one in choose_rules("A04, D01", ())[0]] == ["A04", "D01"]
    with pytest.raises(InputError, match=r"No rule is left: A04 is ignored of A04\."):
        choose_rules(["A04"], "A04")
