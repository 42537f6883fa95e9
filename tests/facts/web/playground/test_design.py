"""Designs: what is absent takes the default, what cannot be built names its knob."""

from __future__ import annotations

import json
import pickle

import pytest
import torch

from leadline.parts.inits.init import RESIDUAL
from leadline.parts.recipe import PARTS
from leadline.web.playground.answer import parts_of
from leadline.web.playground.design import MOST_TOKENS, Design, DesignError
from leadline.web.playground.knobs import knob_list, knobs_json, quantity_list
from leadline.web.playground.pooled_model import pooled_model


def refusal(fields: object) -> DesignError:
    with pytest.raises(DesignError) as caught:
        Design.from_json(fields).model()
    return caught.value


def test_json_goes_both_ways_and_spells_parts_in_one_way() -> None:
    design = Design.from_json({"connection": {"name": "hyper", "lanes": 2}, "depth": 3, "gain": 2})
    assert design.connection == "hyper(lanes=2)" and design.gain == 2.0
    assert Design.from_json(json.loads(json.dumps(design.to_json()))) == design
    assert design.difference() == {"connection": "hyper(lanes=2)", "depth": 3, "gain": 2.0}
    assert Design.from_json({}) == Design()


@pytest.mark.parametrize(
    ("fields", "knob", "words"),
    [
        ({"heads": 5}, "heads", "64 cannot be divided among 5 heads"),
        ({"depth": 1}, "depth", "2 to 96"),
        ({"depth": 2.0}, "depth", "whole number"),
        ({"depth": True}, "depth", "whole number"),
        ({"width": 8}, "width", "16 to 256"),
        ({"gain": 5}, "gain", "0 to 4"),
        ({"gain": float("nan")}, "gain", "0 to 4"),
        ({"gain": "2"}, "gain", "0 to 4"),
        ({"gain": 10**400}, "gain", "0 to 4"),
        ({"connection": "highway(bias=1e308)"}, "connection", "up to 1e+08"),
        ({"connection": "multiplier(value=-1e39)"}, "connection", "up to 1e+08"),
        ({"connection": f"weighted(alpha={10**400})"}, "connection", "up to 1e+08"),
        ({"init": "gpt2(std=1e30)"}, "init", "up to 1e+08"),
        ({"mask": "windowed"}, "mask", "causal"),
        ({"text": "a"}, "text", "two bytes"),
        ({"text": 3}, "text", "words"),
        ({"seed": -1}, "seed", "whole number"),
        ({"connection": "identities"}, "connection", "identity"),
        ({"connection": "hyper(lanes=0)"}, "connection", "lanes"),
        ({"connection": "hyper(lanes=10000)"}, "connection", "at most 16"),
        ({"mlp": "relu(hidden=1000000)"}, "mlp", "at most 1024"),
        ({"norm": "layernorm(eps=-1)"}, "norm", "eps"),
        ({"norm": None}, "norm", "name"),
        ({"init": "gpt2(std=-1)"}, "init", "std"),
        ({"connection": "deepnorm"}, "connection", "a norm must follow each addition"),
        ({"connection": "deepnorm", "placement": "post", "norm": "none"}, "connection", "norm"),
        ({"placement": "parallel", "mlp": "none"}, "placement", "needs attention and mlp"),
        ({"connection": "depth_attention(blocks=200)"}, "connection", "blocks"),
        ({"colour": "red"}, "colour", "no knob"),
        ({"dpeth": 3}, "dpeth", "'depth'"),
        ([], None, "mapping"),
        ("pre", None, "mapping"),
    ],
)
def test_what_cannot_be_built_names_the_knob(fields: object, knob: str | None, words: str) -> None:
    error = refusal(fields)
    assert error.knob == knob
    assert words in str(error)
    (part,) = parts_of(fields)
    assert part == {"part": "error", "knob": knob, "reason": str(error)}
    assert pickle.loads(pickle.dumps(error)).knob == knob


@pytest.mark.parametrize(
    "fields",
    [
        {"connection": "highway(bias=-1e8)"},
        {"connection": "completep(reference=100000000.0)"},
        {"connection": "weighted(alpha=1e8)"},
        {"norm": "rmsnorm(offset=1e8)"},
        {"init": "gpt2(std=1e8)"},
        {"init": "xavier(gain=1e8)"},
    ],
)
def test_the_largest_numbers_of_options_have_curves(fields: dict[str, object]) -> None:
    parts = list(parts_of({"depth": 6, "gain": 4.0, **fields}))
    assert [part["part"] for part in parts] == ["curves", "verdict", "laws", "end"]


def test_text_is_cut_at_whole_letters() -> None:
    assert Design(text="é" * 100).tokens == MOST_TOKENS
    assert Design(text="x" + "é" * 100).tokens == MOST_TOKENS - 1
    assert Design(text="ab\ud800").text == "ab?"
    ids = Design(text="aé").inputs().main
    assert ids.tolist() == [list("aé".encode())]


def test_gain_multiplies_what_writes_to_the_stream_and_nothing_else() -> None:
    plain, loud = Design(depth=2).model(), Design(depth=2, gain=3.0).model()
    for one, other in zip(plain.sublayers(), loud.sublayers(), strict=True):
        for (role, weight), (_, scaled) in zip(
            one.branch.weights(), other.branch.weights(), strict=True
        ):
            factor = 3.0 if role in RESIDUAL else 1.0
            assert torch.equal(weight * factor, scaled), role


@pytest.mark.parametrize("placement", PARTS["placement"].names())
def test_the_pooled_model_has_the_weights_of_the_model(placement: str) -> None:
    for fields in ({}, {"gain": 2.0, "seed": 5}, {"width": 32, "mask": "full"}, {"mlp": "swiglu"}):
        design = Design.from_json({"depth": 3, "placement": placement, **fields})
        expected = design.model().state_dict()
        pooled = pooled_model(design)
        assert list(pooled.state_dict()) == list(expected)
        assert all(torch.equal(one, expected[name]) for name, one in pooled.state_dict().items())
        assert pooled.causal == (design.mask == "causal")


def test_every_part_of_every_catalog_is_a_choice_of_its_knob() -> None:
    knobs = {knob["name"]: knob for knob in knob_list()}
    assert list(knobs) == list(Design().to_json())
    for name in ("connection", "placement", "norm", "init", "mlp", "positions"):
        names = {one["name"] for one in knobs[name]["choices"]}
        assert names - {"auto"} == set(PARTS[name].names())
        assert all(one["summary"] for one in knobs[name]["choices"])
        for choice in knobs[name]["choices"]:
            known = PARTS[name].options(choice["name"]) if choice["name"] != "auto" else {}
            assert [one["name"] for one in choice["options"]] == list(known)
    lanes = next(one for one in knobs["connection"]["choices"] if one["name"] == "hyper")[
        "options"
    ][0]
    assert lanes == {"name": "lanes", "kind": "integer", "default": 4, "min": 0, "max": 16}
    for knob in knobs.values():
        assert knob["default"] == getattr(Design(), knob["name"])


def test_what_a_page_asks_for_first_is_strict_json() -> None:
    text = json.dumps(knobs_json(), allow_nan=False)
    assert json.loads(text)["quantities"] == quantity_list()
    assert {one["scale"] for one in quantity_list()} <= {"log", "linear"}
