"""What a user means is understood or refused, and held against what was found."""

from __future__ import annotations

import pytest
import torch

from leadline.errors import InputError, RecordError
from leadline.instruments.visit.diagnose import diagnose
from leadline.instruments.visit.patient import VisitOptions
from leadline.instruments.visit.visit import visit
from leadline.parts import Recipe, Transformer
from leadline.parts.recipes import RECIPES
from leadline.reading.diagnosis.designs import design_of
from leadline.reading.diagnosis.diagnosis import diagnose_record
from leadline.reading.diagnosis.intended import parse_intended


def aspects(text: str) -> dict[str, object]:
    return {one.aspect: one.value for one in parse_intended(text).expectations}


def test_phrases_between_commas_are_understood() -> None:
    assert aspects("Pre-LN, causal and 12 layers; RMSNorm") == {
        "placement": "pre",
        "causal": True,
        "depth": 12,
        "norm": "rmsnorm",
    }
    assert aspects("residual multiplier 0.22, width 768, tied") == {
        "gain": 0.22,
        "width": 768,
        "tied": True,
    }


def test_a_family_says_what_its_paper_says_and_a_later_phrase_wins() -> None:
    assert aspects("gpt2")["placement"] == "pre" and aspects("bert")["causal"] is False
    assert aspects("gptj")["parallel"] is True
    assert aspects("gpt2, post-norm")["placement"] == "post"


@pytest.mark.parametrize("text", ["", " , ", "prenrom", "gpt2, quickly"])
def test_what_is_not_understood_is_refused_with_what_is(text: str) -> None:
    with pytest.raises(InputError, match="pre-norm"):
        parse_intended(text)


def test_a_wrong_intention_is_refused_before_the_work() -> None:
    with pytest.raises(InputError, match="quickly"):
        diagnose(Transformer(Recipe(depth=2, width=16, heads=2), seed=0), intended="quickly")


SINGLE = {"gpt1": "post", "gpt2": "pre", "llama": "pre", "olmo2": "output", "bert-base": "post",
          "gpt-j": "pre", "gpt-neox": "pre", "gemma": "pre"}  # fmt: skip


def test_every_recipe_of_ours_can_be_intended() -> None:
    for name, _ in RECIPES.items():
        parse_intended(name)


@pytest.mark.parametrize("name", SINGLE)
def test_our_recipes_agree_with_the_table_of_designs(name: str) -> None:
    recipe = RECIPES.get(name)()
    design = design_of(name)
    assert design is not None and design.placement == SINGLE[name]
    assert design.norm is not None and design.norm in str(recipe.choice("norm"))
    if design.parallel is not None:
        assert ("parallel" in str(recipe.choice("placement"))) == design.parallel
    small = recipe.but(depth=2, width=32, heads=2, vocabulary=50, context=32)
    if "hidden" in str(recipe.choice("mlp")):
        small = small.but(mlp=str(recipe.choice("mlp").name))
    if "groups" in str(recipe.choice("attention")):
        small = small.but(attention="multihead(bias=false)")
    record = visit(
        Transformer(small, seed=0),
        torch.arange(24).view(2, 12),
        twin=False,
        checks=("blocks", "design"),
        options=VisitOptions(intended=name),
    )
    assert record.provenance["visit"]["intended"] == name
    assert diagnose_record(record, select=("X01",)).findings == ()


@pytest.mark.parametrize(
    ("intended", "what"),
    [
        ("post-norm", "placement"),
        ("bidirectional", "causal"),
        ("parallel", "parallel"),
        ("3 layers", "depth"),
        ("rmsnorm", "norm"),
        ("no final norm", "final norm"),
        ("bert", "placement"),
        ("deepnorm", "factor of the stream"),
        ("residual multiplier 0.5", "factor of updates"),
        ("untied", "tied"),
    ],
)
def test_a_model_that_is_not_as_intended_is_told(intended: str, what: str) -> None:
    recipe = Recipe(
        depth=2, width=32, heads=2, vocabulary=50, context=32, norm="layernorm", placement="pre",
        head="tied",
    )  # fmt: skip
    model = Transformer(recipe, seed=0)
    options = VisitOptions(intended=intended)
    record = visit(
        model,
        torch.arange(24).view(2, 12),
        twin=False,
        checks=("blocks", "design"),
        options=options,
    )
    findings = diagnose_record(record, select=("X01",)).findings
    assert findings and any(what in finding.verdict for finding in findings)
    agreed = visit(
        model, torch.arange(24).view(2, 12), twin=False, checks=("blocks", "design"),
        options=VisitOptions(intended="pre-norm, causal, sequential, 2 layers, layernorm, tied, gpt2"),
    )  # fmt: skip
    assert diagnose_record(agreed, select=("X01",)).findings == ()


def test_without_an_intention_the_rule_does_not_look() -> None:
    model = Transformer(Recipe(depth=2, width=16, heads=2, vocabulary=20, context=16), seed=0)
    record = visit(model, twin=False, checks=("blocks", "design"))
    with pytest.raises(RecordError, match="X01 cannot look"):
        diagnose_record(record, select=("X01",))
