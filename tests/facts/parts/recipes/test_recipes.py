"""Recipes of known models: their parameters, counted without a weight, and what they are."""

from __future__ import annotations

import sys

import pytest
import torch

from leadline.parts import Recipe, Transformer
from leadline.parts.recipes import RECIPES

# Published totals: of the papers' tables and of the checkpoints on the hub.
PARAMETERS = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "gpt1": 116_534_784,
    "bert-base": 109_514_298,
    "llama": 6_738_415_616,
    "smollm2-135m": 134_515_008,
    "olmo2": 1_484_916_736,
    "gemma": 2_506_172_416,
    "gpt-j": 6_050_882_784,
    "gpt-neox": 20_554_567_680,
    "pythia-160m": 162_322_944,
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_recipe_has_as_many_parameters_as_the_published_model(name):
    with torch.device("meta"):
        model = Transformer(RECIPES.build(name))
    assert {weight.device.type for weight in model.parameters()} == {"meta"}
    assert sum(weight.numel() for weight in model.parameters()) == PARAMETERS[name]
    # The module's docstring gives the number, too.
    assert f"{PARAMETERS[name]:,}" in str(sys.modules[RECIPES.get(name).__module__].__doc__)


def test_deepnet_has_the_parameters_of_its_formula():
    with torch.device("meta"):
        model = Transformer(RECIPES.build("deepnet"))
    width, hidden = 512, 2048
    matrices = 4 * width**2 + 2 * width * hidden
    biases = 4 * width + hidden + width
    norms = 2 * 2 * width
    expected = 200 * (matrices + biases + norms) + (32000 + 512) * width
    assert sum(weight.numel() for weight in model.parameters()) == expected


# What parameters do not tell: (heads, the other fields that differ from a plain recipe).
PARTS = {
    "gpt2": (12, 1024, {"head": "tied"}),
    "gpt2-medium": (16, 1024, {"head": "tied"}),
    "gpt2-large": (20, 1024, {"head": "tied"}),
    "gpt2-xl": (25, 1024, {"head": "tied"}),
    "gpt1": (12, 512, {"head": "tied", "placement": "post"}),
    "bert-base": (
        12,
        512,
        {
            "attention": "multihead(causal=false)",
            "mlp": "gelu",
            "norm": "layernorm(eps=1e-12)",
            "placement": "post",
            "embedding": "token(normed=true, types=2)",
            "head": "masked",
        },
    ),
    "llama": (
        32,
        4096,
        {
            "attention": "multihead(bias=false)",
            "positions": "rotary",
            "mlp": "swiglu(hidden=11008)",
            "norm": "rmsnorm(eps=1e-05)",
        },
    ),
    "smollm2-135m": (
        9,
        8192,
        {
            "attention": "multihead(bias=false, groups=3)",
            "positions": "rotary(base=100000.0)",
            "mlp": "swiglu(hidden=1536)",
            "norm": "rmsnorm(eps=1e-05)",
            "head": "tied",
        },
    ),
    "olmo2": (
        16,
        4096,
        {
            "attention": "multihead(bias=false, qk_norm=width)",
            "positions": "rotary(base=500000.0)",
            "mlp": "swiglu(hidden=8192)",
            "norm": "rmsnorm(eps=1e-06)",
            "placement": "output",
        },
    ),
    "gemma": (
        8,
        8192,
        {
            "attention": "multihead(bias=false, groups=1)",
            "positions": "rotary",
            "mlp": "geglu(hidden=16384)",
            "norm": "rmsnorm(eps=1e-06, offset=1.0)",
            "embedding": "token(scale=sqrt_width)",
            "head": "tied",
        },
    ),
    "gpt-j": (
        16,
        2048,
        {
            "attention": "multihead(bias=false)",
            "positions": "rotary(pairs=neighbours, share=0.25)",
            "placement": "parallel",
            "head": "linear(bias=true)",
        },
    ),
    "gpt-neox": (
        64,
        2048,
        {"positions": "rotary(share=0.25)", "mlp": "gelu", "placement": "parallel(norms=2)"},
    ),
    "pythia-160m": (
        12,
        2048,
        {"positions": "rotary(share=0.25)", "mlp": "gelu", "placement": "parallel(norms=2)"},
    ),
    "deepnet": (
        8,
        512,
        {
            "mlp": "relu",
            "connection": "deepnorm",
            "init": "deepnorm",
            "placement": "post",
            "head": "tied",
        },
    ),
    "default": (4, 256, {}),
}


def test_the_default_recipe_is_the_plain_one():
    assert RECIPES.build("default") == Recipe()


@pytest.mark.parametrize("name", sorted({*RECIPES.names()} - {"default"}))
def test_a_recipe_is_made_of_the_parts_of_its_model(name):
    heads, context, parts = PARTS[name]
    recipe = RECIPES.build(name)
    assert (recipe.heads, recipe.context) == (heads, context)
    plain = Recipe()
    for field in ("attention", "positions", "mlp", "norm", "connection", "placement", "init"):
        assert str(recipe.choice(field)) == parts.get(field, str(plain.choice(field))), field
    for field in ("embedding", "head"):
        assert str(recipe.choice(field)) == parts.get(field, str(plain.choice(field))), field


@pytest.mark.parametrize("name", RECIPES.names())
def test_a_recipe_has_one_line_and_survives_json(name):
    entry = RECIPES.get(name)
    assert entry.__doc__ is not None
    assert "\n" not in entry.__doc__ and entry.__doc__.endswith(".")
    assert Recipe.from_json(entry().to_json()) == entry()


@pytest.mark.parametrize("name", RECIPES.names())
def test_a_small_one_of_each_kind_runs(name):
    recipe = RECIPES.build(name)
    small = recipe.but(depth=2, width=32, heads=4, vocabulary=17, context=8)
    attention = dict(small.choice("attention").options)
    attention |= {"groups": 2} if "groups" in attention else {}
    mlp = {**small.choice("mlp").options}
    mlp |= {"hidden": 24} if "hidden" in mlp else {}
    small = small.but(
        attention={"name": "multihead", **attention},
        mlp={"name": small.choice("mlp").name, **mlp},
    )
    ids = torch.arange(6).unsqueeze(0)
    assert Transformer(small)(ids).shape == (1, 6, 17)


def test_a_model_on_meta_draws_nothing_and_touches_no_random_numbers():
    before = torch.random.get_rng_state()
    with torch.device("meta"):
        model = Transformer(depth=1, width=16, positions="rotary", attention="multihead")
    assert torch.equal(torch.random.get_rng_state(), before)
    assert model(torch.zeros(1, 4, dtype=torch.long, device="meta")).shape == (1, 4, 256)


def test_an_undrawn_model_has_the_shapes_and_the_norms_of_a_drawn_one():
    drawn, undrawn = Transformer(depth=1, width=16), Transformer(depth=1, width=16, draw=False)
    shapes = {name: tensor.shape for name, tensor in drawn.state_dict().items()}
    assert {name: tensor.shape for name, tensor in undrawn.state_dict().items()} == shapes
    assert torch.equal(undrawn.norm.weight, torch.ones(16))
