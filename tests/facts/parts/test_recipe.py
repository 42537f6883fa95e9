"""A recipe on paper: what it refuses, with which sentence, and how it is written down."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from leadline.catalog import Choice
from leadline.errors import CatalogError, RecipeError, UnknownName
from leadline.parts import PARTS, Recipe, Transformer
from leadline.parts.connections.rezero import ReZero


def _refusal(**fields: Any) -> str:
    with pytest.raises(RecipeError) as caught:
        Recipe(**fields)
    return str(caught.value)


@pytest.mark.parametrize("field", ["depth", "width", "heads", "vocabulary", "context"])
@pytest.mark.parametrize("value", [0, -3, True, 2.0, "4"])
def test_sizes_are_whole_numbers_from_one_on(field: str, value: object) -> None:
    expected = f"The {field} of a recipe is a whole number from 1 on, not {value!r}."
    assert _refusal(**{field: value}) == expected


@pytest.mark.parametrize("field", ["depth", "width", "vocabulary", "context"])
def test_a_size_may_be_one_but_not_left_out(field: str) -> None:
    assert getattr(Recipe(**{field: 1}), field) == 1
    expected = f"The {field} of a recipe is a whole number from 1 on, not None."
    assert _refusal(**{field: None}) == expected


@pytest.mark.parametrize(
    ("width", "heads", "advice"),
    [
        (100, 7, "2, 4, 5 or 10 heads"),
        (256, 3, "1, 2, 4 or 8 heads"),
        (7, 2, "1 or 7 heads"),
        (1, 2, "1 head"),
        (2, 4, "1 or 2 heads"),
        (4, 8, "1, 2 or 4 heads"),
    ],
)
def test_a_width_that_heads_cannot_share_is_refused_with_heads_that_can(
    width: int, heads: int, advice: str
) -> None:
    assert _refusal(width=width, heads=heads) == (
        f"The width {width} cannot be divided among {heads} heads; choose {advice}, or another "
        "width."
    )


def test_heads_of_a_given_width_and_no_attention_need_no_division() -> None:
    assert Recipe(width=100, heads=7, attention="multihead(head_width=8)").heads == 7
    assert Recipe(width=100, heads=7, attention="none").heads == 7


@pytest.mark.parametrize(
    ("width", "heads"), [(256, 4), (64, 1), (63, 1), (8, 1), (130, 2), (200, 1), (768, 12)]
)
def test_heads_are_sixty_four_wide_unless_told(width: int, heads: int) -> None:
    assert Recipe(width=width).heads == heads


def test_a_recipe_needs_a_branch() -> None:
    assert _refusal(attention="none", mlp="none") == (
        "A recipe with neither attention nor an MLP computes nothing; choose one of them."
    )


@pytest.mark.parametrize("field", PARTS)
@pytest.mark.parametrize("value", [3, ["pre"], True])
def test_a_part_is_chosen_by_name(field: str, value: object) -> None:
    first = PARTS[field].names()[0]
    assert _refusal(**{field: value}) == (
        f"The {field} of a recipe is a name such as {first!r}, not a {type(value).__name__}."
    )


@pytest.mark.parametrize("field", [field for field in PARTS if field != "init"])
def test_a_part_other_than_the_init_cannot_be_left_out(field: str) -> None:
    first = PARTS[field].names()[0]
    assert _refusal(**{field: None}) == (
        f"The {field} of a recipe is a name such as {first!r}, not a NoneType."
    )


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"placement": "pree"}, "No placement is called 'pree'. Did you mean 'pre'? Known: "),
        ({"norm": "rmsnrom"}, "No norm is called 'rmsnrom'. Did you mean 'rmsnorm'"),
        ({"connection": "rezro"}, "No connection is called 'rezro'. Did you mean 'rezero'"),
        ({"mlp": "swiglue"}, "No mlp is called 'swiglue'. Did you mean 'swiglu'"),
    ],
)
def test_an_unknown_part_gets_the_nearest_names(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UnknownName) as caught:
        Recipe(**fields)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"connection": "identity(alpha=2)"},
            "The connection 'identity' has no option 'alpha'. Its options: none.",
        ),
        (
            {"placement": "mix(shares=0.5)"},
            "The placement 'mix' has no option 'shares'. Did you mean 'share'? Its options: share.",
        ),
        (
            {"norm": "rmsnorm(width=3)"},
            "The norm 'rmsnorm' has no option 'width'. Its options: eps, offset.",
        ),
    ],
)
def test_an_unknown_option_is_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CatalogError) as caught:
        Recipe(**fields)
    assert str(caught.value) == sentence


def test_an_unknown_field_is_refused_wherever_it_is_given() -> None:
    sentence = "A recipe has no field 'dept'. Did you mean 'depth'? Its fields: depth, width, heads"
    for give in (Recipe().but, Transformer, lambda **fields: Recipe.from_json(fields)):
        with pytest.raises(RecipeError) as caught:
            give(dept=3)
        assert str(caught.value).startswith(sentence)
    with pytest.raises(RecipeError, match=r"no field 'zzz'\. Its fields: depth"):
        Recipe.from_json({"zzz": 1})


def test_a_connection_that_multiplies_the_stream_needs_a_norm_after_it() -> None:
    assert _refusal(connection="deepnorm", placement="pre").startswith(
        "The connection 'deepnorm' makes no sense with the placement 'pre': "
    )
    assert _refusal(connection="deepnorm", placement="post", norm="none") == (
        "The connection 'deepnorm' needs a norm after each addition, and the recipe's norm is "
        "none; choose layernorm or rmsnorm."
    )
    assert Recipe(connection="deepnorm", placement="post").choice("connection").name == "deepnorm"
    assert Recipe(connection="identity", placement="post", norm="none").depth == 12


def test_a_connection_is_told_how_many_writes_a_layer_has(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []

    def refuses(placement: Any, sublayers: int) -> str | None:
        told.append(sublayers)
        return "it was asked" if sublayers == 1 else None

    monkeypatch.setattr(ReZero, "refuses", refuses)
    Recipe(connection="rezero")
    assert _refusal(connection="rezero", placement="parallel") == (
        "The connection 'rezero' makes no sense with the placement 'parallel': it was asked."
    )
    _refusal(connection="rezero", mlp="none")
    assert told == [2, 1, 1]


def test_a_recipe_says_what_its_parts_are_unless_told() -> None:
    found = Recipe().to_json()
    assert found == {
        "depth": 12,
        "width": 256,
        "heads": 4,
        "attention": {"name": "multihead"},
        "positions": {"name": "learned"},
        "mlp": {"name": "gelu_tanh"},
        "norm": {"name": "layernorm"},
        "connection": {"name": "identity"},
        "placement": {"name": "pre"},
        "init": {"name": "gpt2"},
        "embedding": {"name": "token"},
        "head": {"name": "linear"},
        "vocabulary": 256,
        "context": 256,
    }


def test_a_recipe_survives_json() -> None:
    recipe = Recipe(
        depth=3,
        width=48,
        heads=6,
        attention="multihead(groups=2, qk_norm=head, bias=false)",
        positions=Choice("rotary", share=0.5),
        mlp={"name": "swiglu", "hidden": 64},
        norm="rmsnorm(eps=1e-5)",
        placement="mix(share=0.5)",
        init="xavier",
        head="tied",
    )
    again = Recipe.from_json(json.loads(json.dumps(recipe.to_json())))
    assert again == recipe
    assert hash(again) == hash(recipe)
    assert again != recipe.but(depth=4)
    assert again.choice("positions").options == {"share": 0.5}


def test_the_three_spellings_of_a_part_are_one() -> None:
    spellings: list[Any] = [
        "mix(share=0.5)",
        Choice("mix", share=0.5),
        {"name": "mix", "share": 0.5},
    ]
    assert len({Recipe(placement=spelling) for spelling in spellings}) == 1


def test_a_recipe_cannot_be_changed_but_by_but() -> None:
    recipe = Recipe(depth=3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(recipe, "depth", 4)  # noqa: B010 - a type checker refuses the plain way
    with pytest.raises(TypeError, match="positional"):
        Recipe(*(3,))
    assert recipe.but(depth=4) == Recipe(depth=4)
    assert recipe.but() == recipe


def test_a_recipe_prints_one_line_for_each_field() -> None:
    lines = str(Recipe(depth=3, placement="mix(share=0.5)")).splitlines()
    assert len(lines) == 14
    assert lines[0] == "depth       3"
    assert "placement   mix(share=0.5)" in lines


@pytest.mark.parametrize(
    ("fields", "changes", "heads"),
    [
        ({"width": 64, "heads": 4}, {"width": 128}, 8),
        ({"width": 64, "heads": 4}, {"width": 16}, 1),
        ({"width": 64, "heads": 4}, {"width": 128, "heads": 2}, 2),
        ({"width": 64, "heads": 4}, {"heads": 8}, 8),
        ({"width": 64, "heads": 4}, {"width": 40}, 4),  # no multiple of 16: the heads stay
        ({"width": 64, "heads": 4}, {"width": 8}, 4),  # narrower than one head
        ({"width": 64, "heads": 4}, {"depth": 2}, 4),
    ],
)
def test_the_width_of_a_head_stays_when_the_width_changes(
    fields: dict[str, Any], changes: dict[str, Any], heads: int
) -> None:
    assert Recipe(**fields).but(**changes).heads == heads


@pytest.mark.parametrize("width", [0, -16, "wide", None])
def test_an_impossible_change_of_width_is_refused(width: object) -> None:
    with pytest.raises(RecipeError, match="The width of a recipe is a whole number from 1 on"):
        Recipe(width=64, heads=4).but(width=width)


def test_the_init_follows_the_connection_unless_it_was_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ReZero, "init", "xavier")
    assert Recipe().choice("init").name == "gpt2"
    rezero = Recipe().but(connection="rezero")
    assert rezero.choice("init").name == "xavier"
    assert rezero.but(connection="identity").choice("init").name == "gpt2"
    assert rezero.but(depth=2).choice("init").name == "xavier"
    assert rezero.but(connection="identity", init="xavier").choice("init").name == "xavier"
    chosen = Recipe(init="gpt2(std=0.5)")
    assert chosen.but(connection="rezero").choice("init") == Choice("gpt2", std=0.5)
    assert Recipe(connection="rezero", init="gpt2").choice("init").name == "gpt2"


def test_the_branches_of_a_recipe_are_those_it_did_not_leave_out() -> None:
    assert Recipe().branches == ("attention", "mlp")
    assert Recipe(mlp="none").branches == ("attention",)
    assert Recipe(attention="none").branches == ("mlp",)
