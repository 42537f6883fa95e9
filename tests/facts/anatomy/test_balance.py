"""The balance is a proof: it breaks when anything that was read is not what was added."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import leadline
from leadline.anatomy import Tap, declare, judge, untouched
from leadline.anatomy.find.fit import misses
from leadline.errors import AnatomyError, BalanceError
from leadline.instruments.passes.running import call
from leadline.models.inputs import as_inputs
from leadline.testing.zoo import ZOO


def _model(name: str) -> tuple[nn.Module, Any]:
    specimen = ZOO[name]
    model = specimen.build(0).eval()
    return model, as_inputs(specimen.inputs(model, 1), model)


def test_a_miss_is_counted_in_rounding_units_of_the_larger_stream() -> None:
    before, after = torch.tensor([[3.0, 4.0]]), torch.tensor([[0.6, 0.8]])
    predicted = after + torch.tensor([[0.0, 5e-6]])
    eps = torch.finfo(torch.float32).eps
    expected = float((predicted - after).norm()) / (5.0 * eps)
    assert float(misses(predicted, after, before)) == pytest.approx(expected, rel=1e-6)


def test_a_zero_token_that_stays_zero_misses_by_nothing() -> None:
    zero = torch.zeros(1, 4)
    assert float(misses(zero, zero, zero)) == 0.0


@pytest.mark.parametrize("name", ["gpt2", "bert", "olmo2", "gptj", "t5", "deepseek_v4", "xlm"])
def test_corrupting_what_a_branch_hands_on_breaks_the_balance(name: str) -> None:
    model, batch = _model(name)
    with untouched(model):
        anatomy = leadline.anatomy_of(model, batch)
        block = anatomy.stacks[0].blocks[1]
        with Tap(model, anatomy) as tap, torch.no_grad():
            # Set after the tap, so the model adds something else than the tap read.
            handle = model.get_submodule(block.sublayers[0].module).register_forward_hook(_spoil)
            call(model, batch)
            handle.remove()
    balance = tap.balance()
    assert balance.eps > 1000
    assert (balance.stack, balance.layer) == (anatomy.stacks[0].name, block.layer)


def _spoil(module: nn.Module, args: object, output: Any) -> Any:
    if isinstance(output, torch.Tensor):
        return output * 1.01
    return type(output)((output[0] * 1.01, *output[1:]))


def test_olmo2_read_before_its_output_norm_is_refused_with_what_would_balance() -> None:
    model, batch = _model("olmo2")
    wrong = declare(blocks="model.layers", writes=["self_attn", "mlp"])
    with pytest.raises(BalanceError) as caught:
        leadline.anatomy_of(model, batch, anatomy=wrong)
    message = str(caught.value)
    assert "decoder layer" in message and "eps" in message
    assert "post_attention_layernorm" in message and "post_feedforward_layernorm" in message
    assert caught.value.args


def test_the_right_declaration_is_accepted() -> None:
    model, batch = _model("olmo2")
    right = declare(
        blocks="model.layers", writes=["post_attention_layernorm", "post_feedforward_layernorm"]
    )
    anatomy = leadline.anatomy_of(model, batch, anatomy=right)
    assert anatomy.source == "user"
    assert [s.role for s in anatomy.stacks[0].blocks[0].sublayers] == ["attention", "mlp"]
    assert anatomy.balance is not None and anatomy.balance.eps < 1


def test_a_post_norm_declaration_names_its_settling_norms() -> None:
    model, batch = _model("bert")
    right = declare(
        blocks="bert.encoder.layer",
        writes=["attention.output.dense", "output.dense"],
        settle=["attention.output.LayerNorm", "output.LayerNorm"],
    )
    anatomy = leadline.anatomy_of(model, batch, anatomy=right)
    assert anatomy.balance is not None and anatomy.balance.eps < 1


@pytest.mark.parametrize(
    ("name", "wrong", "right"), [("granite", 1.0, 0.22), ("minicpm3", 1.0, None)]
)
def test_a_declaration_with_the_wrong_gain_is_refused(
    name: str, wrong: float, right: float | None
) -> None:
    model, batch = _model(name)
    writes = ["self_attn", "mlp"]
    with pytest.raises(BalanceError):
        leadline.anatomy_of(
            model, batch, anatomy=declare(blocks="model.layers", writes=writes, gains=[wrong] * 2)
        )
    if right is not None:
        good = declare(blocks="model.layers", writes=writes, gains=[right] * 2)
        assert leadline.anatomy_of(model, batch, anatomy=good).balance is not None


def test_a_declared_path_that_does_not_exist_is_answered_with_the_nearest() -> None:
    model, batch = _model("gpt2")
    with pytest.raises(AnatomyError, match=r"transformer\.h"):
        leadline.anatomy_of(model, batch, anatomy=declare(blocks="transfomer.h", writes=["attn"]))
    with pytest.raises(AnatomyError, match=r"transformer\.h\.0\.attn"):
        leadline.anatomy_of(model, batch, anatomy=declare(blocks="transformer.h", writes=["atn"]))


def test_every_write_needs_its_own_factor() -> None:
    with pytest.raises(AnatomyError, match="2 writes were declared but 1 gains"):
        declare(blocks="h", writes=["a", "b"], gains=[1.0])


def test_judging_is_on_every_block() -> None:
    model, batch = _model("gpt2")
    anatomy = leadline.anatomy_of(model, batch)
    with untouched(model):
        balance = judge(model, anatomy, lambda: call(model, batch))
    assert set(balance.per_layer) == {("decoder", 1), ("decoder", 2), ("decoder", 3)}


def test_a_model_may_declare_its_own_anatomy() -> None:
    model, batch = _model("gpt2")
    found = leadline.anatomy_of(model, batch)
    own = found.__class__(found.stacks, "declared by the model")
    model.anatomy = lambda: own  # pyright: ignore
    assert leadline.anatomy_of(model, batch).source == "declared by the model"


def test_what_a_model_calls_its_anatomy_must_be_one() -> None:
    model, batch = _model("gpt2")
    model.anatomy = lambda: "bones"  # pyright: ignore
    with pytest.raises(AnatomyError, match="returned str"):
        leadline.anatomy_of(model, batch)
