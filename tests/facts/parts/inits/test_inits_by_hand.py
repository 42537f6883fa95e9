"""Every init against its formula: the limit or the std of each role, by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import leadline
from leadline.errors import RecipeError
from leadline.parts.inits import INITS
from leadline.parts.inits.init import generator_of
from leadline.parts.place import Place

ROLES = ("query", "key", "value", "output", "up", "gate", "down", "head", "transform", "other")
TABLE_ROLES = ("embedding", "tied", "positions", "types")
SHAPE = (64, 32)
WIDTH = 25


def place(depth: int = 8, layer: int = 1, sublayers: int = 2) -> Place:
    return Place(width=WIDTH, heads=5, depth=depth, layer=layer, sublayers=sublayers)


def filled(choice: str, role: str, where: Place) -> Tensor:
    weight = torch.full(SHAPE, torch.nan)
    INITS.build(choice).fill(role, weight, where, torch.Generator().manual_seed(7))
    return weight


def uniform(gain: float) -> Tensor:
    """± gain sqrt(6 / (64 + 32)) = ± gain / 4, from the same generator."""
    limit = gain / 4
    generator = torch.Generator().manual_seed(7)
    return torch.empty(SHAPE).uniform_(-limit, limit, generator=generator)


def normal(std: float) -> Tensor:
    return torch.empty(SHAPE).normal_(0.0, std, generator=torch.Generator().manual_seed(7))


def check_uniform(weight: Tensor, gain: float) -> None:
    torch.testing.assert_close(weight, uniform(gain), rtol=1e-5, atol=1e-7)
    assert 0.98 * gain / 4 < float(weight.abs().max()) <= gain / 4 * (1 + 1e-6)


def check_normal(weight: Tensor, std: float) -> None:
    torch.testing.assert_close(weight, normal(std), rtol=1e-5, atol=1e-7)
    assert float(weight.std()) == pytest.approx(std, rel=0.05)
    assert float(weight.abs().max()) > 2.5 * std  # longer tails than a uniform draw


# --- GPT-2 ------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", [*ROLES, *TABLE_ROLES])
def test_gpt2_divides_what_writes_to_the_stream_by_the_root_of_the_writes(role: str) -> None:
    # 8 layers, 16 writes: 0.02 / 4
    check_normal(
        filled("gpt2", role, place(depth=8)), 0.005 if role in ("output", "down") else 0.02
    )


def test_gpt2_counts_writes_and_takes_another_std() -> None:
    check_normal(filled("gpt2(std=0.5)", "down", place(depth=25, sublayers=1)), 0.1)
    check_normal(filled("gpt2(std=0.5)", "up", place(depth=25, sublayers=1)), 0.5)


# --- Xavier -----------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ROLES)
def test_xavier_by_its_limit(role: str) -> None:
    check_uniform(filled("xavier", role, place()), 1.0)
    check_uniform(filled("xavier(gain=0.5)", role, place()), 0.5)


XAVIER_TABLES = ["xavier", "xavier(gain=0.5)", "deepnorm", "depth_scaled(alpha=0.5)"]


@pytest.mark.parametrize("choice", XAVIER_TABLES)
def test_tables_of_xavier_have_unit_rows_and_a_tied_one_unit_logits(choice: str) -> None:
    outer = place(layer=0)
    for role in ("embedding", "positions", "types"):
        check_normal(filled(choice, role, outer), 1.0)
    check_normal(filled(choice, "tied", outer), 0.2)  # 25^(-1/2)


# --- DeepNorm ---------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ROLES)
def test_deepnorm_scales_value_output_and_mlp_by_the_fourth_root(role: str) -> None:
    # 2 layers: (8 * 2)^(-1/4) = 1/2; 32 layers: 256^(-1/4) = 1/4
    scaled = role in ("value", "output", "up", "gate", "down")
    check_uniform(filled("deepnorm", role, place(depth=2)), 0.5 if scaled else 1.0)
    check_uniform(filled("deepnorm", role, place(depth=32)), 0.25 if scaled else 1.0)


def test_deepnorm_counts_writes() -> None:
    # 64 layers of one write: (4 * 64)^(-1/4) = 1/4
    check_uniform(filled("deepnorm", "value", place(depth=64, sublayers=1)), 0.25)


# --- T-Fixup ----------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("sublayers", [1, 2])
def test_tfixup_scales_branches_by_the_fourth_root_of_its_layers(role: str, sublayers: int) -> None:
    scaled = role in ("value", "output", "up", "gate", "down")
    # 16 layers: 0.67 / 2; 9 layers: 81^(-1/4) = 1/3
    encoder = filled("tfixup(kind=encoder)", role, place(depth=16, sublayers=sublayers))
    check_uniform(encoder, 0.335 if scaled else 1.0)
    decoder = filled("tfixup(kind=decoder)", role, place(depth=9, sublayers=sublayers))
    check_uniform(decoder, 1 / 3 if scaled else 1.0)
    assert torch.equal(decoder, filled("tfixup", role, place(depth=9, sublayers=sublayers)))


@pytest.mark.parametrize("role", TABLE_ROLES)
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_tfixup_shrinks_its_tables(role: str, kind: str) -> None:
    # width^(-1/2) = 1/5, and 81^(-1/4) = 1/3
    check_normal(filled(f"tfixup(kind={kind})", role, place(depth=9, layer=0)), 1 / 15)


# --- muP --------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ROLES)
def test_mup_goes_by_fan_in_but_for_the_head(role: str) -> None:
    # The weight is [64 out, 32 in].
    check_normal(filled("mup", role, place()), 1 / WIDTH if role == "head" else 32**-0.5)


@pytest.mark.parametrize("role", ["embedding", "positions", "types"])
def test_tables_of_mup_have_std_1(role: str) -> None:
    check_normal(filled("mup", role, place(layer=0)), 1.0)


def test_mup_can_start_with_queries_of_zero() -> None:
    assert torch.equal(filled("mup(zero_query=true)", "query", place()), torch.zeros(SHAPE))
    check_normal(filled("mup(zero_query=true)", "key", place()), 32**-0.5)
    check_normal(filled("mup(zero_query=false)", "query", place()), 32**-0.5)


def test_mup_refuses_one_table_for_both_ends() -> None:
    with pytest.raises(RecipeError, match=r"one table for both; choose the head linear\.$"):
        leadline.Transformer(depth=1, width=8, heads=2, init="mup", head="tied")


# --- depth-scaled -----------------------------------------------------------------------------


@pytest.mark.parametrize("role", ROLES)
def test_depth_scaled_falls_with_the_root_of_the_layer(role: str) -> None:
    check_uniform(filled("depth_scaled", role, place(layer=1)), 1.0)
    check_uniform(filled("depth_scaled", role, place(layer=4)), 0.5)
    check_uniform(filled("depth_scaled(alpha=0.6)", role, place(layer=9)), 0.2)
    check_uniform(filled("depth_scaled(alpha=0.5)", role, place(layer=1)), 0.5)


def test_the_head_is_in_no_layer() -> None:
    check_uniform(filled("depth_scaled(alpha=0.5)", "head", place(layer=0)), 1.0)


# --- in a model -------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", ["gpt2", "xavier", "deepnorm", "tfixup", "mup", "depth_scaled"])
def test_an_init_fills_every_weight_of_a_model(choice: str) -> None:
    model = leadline.Transformer(depth=2, width=16, heads=2, mlp="swiglu", init=choice)
    for name, weight in model.named_parameters():
        assert weight.isfinite().all(), name
        if weight.ndim == 2:
            assert weight.std() > 0, name
    assert model(torch.arange(6).reshape(2, 3)).isfinite().all()


def test_the_connection_deepnorm_brings_its_init() -> None:
    model = leadline.Transformer(
        depth=2, width=16, heads=2, connection="deepnorm", placement="post"
    )
    assert model.recipe.choice("init").name == "deepnorm"
    sublayer = next(model.sublayers())
    weights = {role: weight.detach() for role, weight in sublayer.branch.weights()}
    limit = math.sqrt(6 / 32)
    assert float(weights["query"].abs().max()) > 0.9 * limit
    assert 0.45 * limit < float(weights["value"].abs().max()) <= 0.5 * limit


def test_every_weight_has_a_generator_of_its_own() -> None:
    draws = {
        torch.rand((), generator=generator_of(seed, name)).item()
        for seed in (0, 1)
        for name in ("layer 1 query", "layer 2 query", "layer 1 key")
    }
    assert len(draws) == 6
    again = [torch.rand((), generator=generator_of(0, "a")).item() for _ in range(2)]
    assert again[0] == again[1]


# --- bad options ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        ("gpt2(std=-1)", "The option std of gpt2 is -1; give a number from 0 on."),
        ("xavier(gain=-1)", "The option gain of xavier is -1; give a number from 0 on."),
        ("tfixup(kind=both)", "The option kind of tfixup is 'both'; choose encoder or decoder."),
        ("mup(zero_query=1)", "The option zero_query of mup is 1; give true or false."),
        ("depth_scaled(alpha=0)", "The option alpha of depth_scaled is 0; give a number above 0."),
    ],
)
def test_a_wrong_option_gets_a_sentence(choice: str, sentence: str) -> None:
    with pytest.raises(RecipeError) as caught:
        INITS.build(choice)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("choice", ["gpt2(std=0)", "xavier(gain=0)"])
def test_weights_may_start_at_zero(choice: str) -> None:
    assert torch.equal(filled(choice, "up", place()), torch.zeros(SHAPE))
