"""Adapters: what they compute, that they start as nothing, and that they are trained alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import leadline
from leadline.errors import LabError
from leadline.instruments.passes.measurement import anatomy_of
from leadline.lab.adapters import (
    DOWN_STD,
    Bottleneck,
    adapter_parameters,
    add_bottlenecks,
    add_lora,
    switched_off,
)

IDS = torch.arange(12).reshape(2, 6)
WAYS: dict[str, Callable[..., Any]] = {"bottleneck": add_bottlenecks, "lora": add_lora}


def trained(**fields: Any) -> leadline.Transformer:
    return leadline.Transformer(
        **{
            "depth": 2,
            "width": 8,
            "heads": 2,
            "vocabulary": 16,
            "context": 6,
            "init": "xavier",
            **fields,
        }
    )


def moved(model: leadline.Transformer) -> leadline.Transformer:
    """Adapters that have learned something."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in adapter_parameters(model).values():
            parameter.normal_(generator=generator)
    return model


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("placement", ["pre", "post", "sandwich", "parallel"])
def test_a_model_with_fresh_adapters_is_the_model(way: str, placement: str) -> None:
    model = trained(placement=placement)
    before = model(IDS)
    assert torch.equal(WAYS[way](model, 2)(IDS), before)


@pytest.mark.parametrize("way", WAYS)
def test_adapters_are_trained_alone(way: str) -> None:
    model = trained()
    own = {name for name, _ in model.named_parameters()}
    WAYS[way](model, 2).loss(IDS).backward()
    # PEFT gives the frozen weights another name: base_layer.
    names = {name.replace(".base_layer", "") for name in adapter_parameters(model)}
    assert names and not names & own
    for name, parameter in model.named_parameters():
        assert (parameter.grad is not None) == (name in adapter_parameters(model))


@pytest.mark.parametrize("way", WAYS)
def test_adapters_that_are_switched_off_leave_the_model_as_it_was(way: str) -> None:
    model = trained()
    before = model(IDS)
    moved(WAYS[way](model, 2))
    after, names = model(IDS), set(adapter_parameters(model))
    assert not torch.allclose(after, before, atol=1e-2)
    with switched_off(model):
        assert torch.equal(model(IDS), before)
    assert torch.equal(model(IDS), after)
    assert set(adapter_parameters(model)) == names


def test_a_bottleneck_adds_two_maps_of_the_update_to_it() -> None:
    model = trained(placement="sandwich")
    norm = model.blocks[0].mlp.exit
    moved(add_bottlenecks(model, 3))
    adapter = model.blocks[0].mlp.exit
    assert isinstance(adapter, Bottleneck) and adapter.after is norm
    u = torch.randn(2, 6, 8)
    hidden = norm(u) @ adapter.down.weight.T + adapter.down.bias
    hidden = 0.5 * hidden * (1 + torch.erf(hidden / 2**0.5))
    expected = norm(u) + hidden @ adapter.up.weight.T + adapter.up.bias
    assert torch.allclose(adapter(u), expected, atol=1e-5)
    assert list(adapter.down.weight.shape) == [3, 8]


def test_a_bottleneck_starts_with_small_random_weights_by_seed() -> None:
    model = trained(width=256, heads=2)
    down = add_bottlenecks(copy.deepcopy(model), 64, seed=1).blocks[0].mlp.exit.down
    again = add_bottlenecks(copy.deepcopy(model), 64, seed=1).blocks[0].mlp.exit.down
    other = add_bottlenecks(copy.deepcopy(model), 64, seed=2).blocks[0].mlp.exit.down
    assert DOWN_STD == 0.02
    assert float(down.weight.detach().std()) == pytest.approx(0.02, rel=0.05)
    assert torch.equal(down.weight, again.weight)
    assert not torch.equal(down.weight, other.weight)
    assert not down.bias.any()


@pytest.mark.parametrize("connection", ["gtrxl", "highway", "manifold_hyper"])
def test_lora_leaves_the_maps_of_a_connection_alone(connection: str) -> None:
    model = add_lora(trained(connection=connection), 2)
    adapted = {name.partition(".lora_")[0] for name in adapter_parameters(model)}
    assert adapted == {
        f"blocks.{layer}.{part}"
        for layer in (0, 1)
        for part in (
            *("attention.branch.qkv", "attention.branch.output"),
            *("mlp.branch.up", "mlp.branch.down"),
        )
    }


def test_lora_adds_a_product_of_the_rank_beside_every_map_of_the_branches() -> None:
    model = trained()
    names = [n for n, part in model.named_modules() if isinstance(part, torch.nn.Linear)]
    inside = [name for name in names if name.startswith("blocks.")]
    moved(add_lora(model, 2))
    assert len(adapter_parameters(model)) == 2 * len(inside) == 16
    part: Any = model.blocks[0].mlp.branch.up
    x = torch.randn(3, 8)
    down, up = part.lora_A["default"].weight, part.lora_B["default"].weight
    assert down.shape[0] == up.shape[1] == 2
    plain = x @ part.base_layer.weight.T + part.base_layer.bias
    assert torch.allclose(part(x), plain + x @ down.T @ up.T, atol=1e-5)


def test_the_scale_of_lora_is_over_its_rank() -> None:
    model = moved(add_lora(trained(), 2, scale=6.0))
    part: Any = model.blocks[1].attention.branch.qkv
    x = torch.randn(3, 8)
    change = x @ part.lora_A["default"].weight.T @ part.lora_B["default"].weight.T
    assert torch.allclose(part(x) - part.base_layer(x), 3.0 * change, atol=1e-4)


def test_the_draw_of_lora_follows_the_seed_and_leaves_the_random_numbers() -> None:
    state = torch.get_rng_state()
    one, same, other = (
        add_lora(trained(), 2, seed=seed).blocks[0].mlp.branch.up.lora_A["default"].weight
        for seed in (1, 1, 2)
    )
    assert torch.equal(one, same) and not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("way", WAYS)
def test_the_books_of_an_adapted_model_balance(way: str) -> None:
    model = moved(WAYS[way](trained(), 2)).eval()
    anatomy = anatomy_of(model, {"input_ids": IDS})
    assert anatomy.balance is not None and anatomy.balance.eps < 4


@pytest.mark.parametrize("way", WAYS)
def test_a_model_is_adapted_once(way: str) -> None:
    model = add_bottlenecks(trained(), 2)
    with pytest.raises(LabError, match="has adapters already; add them to a fresh copy"):
        WAYS[way](model, 2)


@pytest.mark.parametrize(("way", "word"), [("bottleneck", "size"), ("lora", "rank")])
@pytest.mark.parametrize("value", [0, 1.5, True, "two"])
def test_a_size_is_a_whole_number(way: str, word: str, value: object) -> None:
    with pytest.raises(LabError) as caught:
        WAYS[way](trained(), value)
    assert str(caught.value) == (
        f"The {word} of an adapter is {value!r}; give a whole number of at least 1."
    )
