"""What could not be looked at is said: no twin, no anatomy, no lanes; and a remedy is not praised early."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch

import leadline as ll
from leadline.instruments.visit.remedies.apply import Proof, apply_remedy
from leadline.reading.diagnosis.case import Case
from leadline.reading.diagnosis.diagnosis import Coverage, Diagnosis
from leadline.record import Finding, Record
from tests.synthetic_blocks import plain_gpt

IDS = torch.randint(0, 48, (2, 12), generator=torch.Generator().manual_seed(1))


@cache
def _own_module() -> Diagnosis:
    return ll.diagnose(plain_gpt(depth=2).eval(), IDS)


@pytest.mark.parametrize("code", ["I02", "I03", "I04", "I05", "O01"])
def test_a_rule_that_compares_with_a_twin_does_not_look_without_one(code: str) -> None:
    coverage = _own_module().coverage
    assert code not in coverage.looked
    assert "no twin: " in dict(coverage.could_not)[code]


def test_the_law_of_a_too_large_spread_needs_no_twin() -> None:
    assert "I01" in _own_module().coverage.looked


def test_a_loss_on_natural_text_is_judged_without_a_twin() -> None:
    record = Record()
    assert not Case(record).has("twin or natural text")
    record.note("input", {"kind": "text"})
    assert Case(record).has("twin or natural text")


def test_lanes_that_a_model_has_not_are_told_so() -> None:
    assert "the model has one stream, not several lanes" in {
        why for _, why in _own_module().coverage.could_not
    }


def _answer(anatomy: dict[str, Any]) -> str:
    record = Record()
    record.note("visit", {"refusal": "Tokens enter as zero."})
    record.note("anatomy", anatomy)
    return Diagnosis((), Coverage(("W01",), ()), record).answer[0]


def test_a_model_whose_blocks_were_not_read_is_not_called_usual() -> None:
    assert _answer({}) == (
        "No fault found here, but the blocks could not be read: Tokens enter as zero. 1 rule looked."
    )
    assert _answer({"layers": [{"layer": 1}]}).startswith("Nothing unusual")


def test_embeddings_of_zeros_are_not_called_usual() -> None:
    model = plain_gpt(depth=2).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            torch.nn.init.zeros_(module.weight)
    diagnosis = ll.diagnose(model, IDS)
    assert not diagnosis.answer[0].startswith("Nothing unusual")


def _diagnosis(*findings: Finding) -> Diagnosis:
    return Diagnosis(findings, Coverage((), ()), Record())


def test_a_fault_as_severe_in_place_of_another_is_no_help() -> None:
    large = Finding("Too large.", severity="serious", code="I01", name="init-too-large")
    small = Finding("Too small.", severity="serious", code="I02", name="init-too-small")
    mild = Finding("Too small.", severity="warning", code="I02", name="init-too-small")
    text = Proof(large, _diagnosis(large), _diagnosis(small)).screen().text()
    assert "does not help" in text
    assert text.count("Too small.") == 1
    assert Proof(large, _diagnosis(large), _diagnosis(mild)).helps
    assert not Proof(large, _diagnosis(large), _diagnosis(large)).helps


def test_a_spread_of_the_configuration_is_mended_there_too() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=48, n_embd=32, n_layer=2, n_head=2, n_positions=16,
                                     bos_token_id=0, eos_token_id=0, initializer_range=0.2)  # fmt: skip
    model = transformers.GPT2LMHeadModel(config).eval()
    finding = next(one for one in ll.diagnose(model, IDS).findings if one.code == "I01")
    copy = apply_remedy(model, finding)
    assert (copy.config.initializer_range, model.config.initializer_range) == (0.02, 0.2)
    weight, before = (one.transformer.h[0].mlp.c_fc.weight for one in (copy, model))
    torch.testing.assert_close(weight, before / 10, rtol=0.05, atol=0)
    codes = {one.code for one in ll.diagnose(copy, IDS).findings}
    assert not codes & {"I01", "I02"}
