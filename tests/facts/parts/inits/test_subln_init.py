"""The init of Sub-LN: Xavier, louder by the root of a logarithm."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from leadline.errors import CatalogError
from leadline.parts import Recipe, Transformer
from leadline.parts.inits import INITS
from leadline.parts.place import Place

LOUD = {"value", "output", "up", "down"}


@pytest.mark.parametrize("depth", [1, 5, 18])
@pytest.mark.parametrize(
    "role", ["query", "key", "value", "output", "up", "gate", "down", "head", "own"]
)
def test_value_output_up_and_down_have_the_gain_root_log_two_layers(role: str, depth: int) -> None:
    weight = torch.empty(96, 64)
    place = Place(width=64, heads=2, depth=depth, layer=1)
    INITS.build("subln").fill(role, weight, place, torch.Generator().manual_seed(0))
    gain = math.sqrt(math.log(2 * depth)) if role in LOUD else 1.0
    limit = gain * math.sqrt(6 / (96 + 64))
    assert 0.99 * limit < float(weight.abs().max()) <= limit * (1 + 1e-6)
    assert float(weight.std()) == pytest.approx(limit / math.sqrt(3), rel=0.03)


def test_the_gain_counts_layers_whatever_their_writes() -> None:
    drawn: list[torch.Tensor] = []
    for sublayers in (1, 2):
        weight = torch.empty(8, 8)
        place = Place(8, 2, depth=3, layer=1, sublayers=sublayers)
        INITS.build("subln").fill("up", weight, place, torch.Generator().manual_seed(0))
        drawn.append(weight)
    assert torch.equal(*drawn)


@pytest.mark.parametrize(("head", "std"), [("linear", 1.0), ("tied", 1 / 8)])
def test_tables_are_drawn_as_by_xavier(head: str, std: float) -> None:
    fields: dict[str, Any] = {"depth": 2, "width": 64, "vocabulary": 100, "head": head}
    subln = Transformer(**fields, placement="subln", init="subln")
    xavier = Transformer(**fields, placement="subln", init="xavier")
    for name in ("embedding.tokens.weight", "embedding.positions.table.weight"):
        assert torch.equal(subln.get_parameter(name), xavier.get_parameter(name))
    assert float(subln.get_parameter("embedding.tokens.weight").detach().std()) == pytest.approx(
        std, rel=0.05
    )


def test_the_init_has_no_options_and_is_not_chosen_unasked() -> None:
    with pytest.raises(CatalogError, match="The init 'subln' has no option 'gain'"):
        Recipe(init="subln(gain=2)")
    assert Recipe(placement="subln").choice("init").name == "gpt2"
