"""Rules about signal and gradient over depth: the sick are named with their place, look-alikes are not."""

from __future__ import annotations

from functools import cache

import pytest
import torch

import leadline
from leadline.lab import pair
from leadline.record import Record
from tests.visits import findings, gpt2, language, visited

DEPTH_RULES = ("D01", "D02", "D03", "D05", "D06", "D07", "D08", "D09")


def recipe(depth: int, **fields) -> leadline.Transformer:
    return leadline.Transformer(depth=depth, width=32, heads=2, seed=0, **fields).eval()


def look(model, inputs=None) -> dict:
    return findings(visited(model, inputs), *DEPTH_RULES)


@cache
def healthy_gpt2() -> Record:
    return visited(gpt2(8))


def test_a_model_as_drawn_has_nothing_wrong_over_depth() -> None:
    assert findings(healthy_gpt2(), *DEPTH_RULES) == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"connection": "rezero"},
        {"connection": "layerscale"},
        {"placement": "post"},
        *[
            pytest.param(fields, marks=pytest.mark.slow)
            for fields in (
                {"connection": "highway"},
                {"connection": "deepnorm", "placement": "post"},
                {"connection": "hyper"},
                {"placement": "output"},
                {"placement": "normformer"},
            )
        ],
    ],
    ids=lambda fields: "-".join(fields.values()),
)
def test_designs_that_look_alike_are_silent(fields) -> None:
    assert look(recipe(8, **fields)) == {}


def test_d01_layers_without_skips_lose_the_gradient() -> None:
    finding = look(recipe(24, connection="none"))["D01"]
    assert finding.severity == "serious"
    assert finding.stack == "decoder"
    assert finding.layers[0] == 1 and 24 not in finding.layers


def test_d02_layers_without_norms_amplify_the_gradient() -> None:
    finding = look(recipe(16, placement="none", init="xavier"))["D02"]
    assert finding.severity == "serious"
    assert set(finding.layers) <= set(range(1, 17)) and len(finding.layers) > 8
    growth = finding.evidence[0]["value"]
    # By hand: the gradient of the first layer over the last, times the same of the streams.
    record = visited(recipe(16, placement="none", init="xavier"))

    def at(quantity: str, layer: int) -> float:
        headline = record.quantities[quantity].headline
        return next(
            r.value
            for r in record.select(quantity, statistic=headline)
            if r.site.layer == layer and r.site.sublayer is None
        )

    ends = [at("gradient.stream", layer) * at("stream.norm", layer) for layer in (1, 16)]
    assert growth >= ends[0] / ends[1] * 0.999


def test_d03_a_layer_that_lifts_the_stream_is_named_with_its_write() -> None:
    model = gpt2(8)
    model.transformer.h[4].mlp.c_proj.weight.data.mul_(3000)
    found = look(model)
    finding = found["D03"]
    assert finding.layers == (5,)
    assert finding.sublayer == "mlp"
    assert finding.parameter == "transformer.h.4.mlp"
    # What comes after it drowns in it, and is not named beside it.
    assert "D06" not in found


def deep_post_norm() -> leadline.Transformer:
    fields = {"placement": "post", "init": "xavier"}
    return leadline.Transformer(depth=24, width=64, heads=4, seed=0, **fields).eval()


def test_d05_tokens_of_deep_post_norm_layers_become_equal() -> None:
    found = look(deep_post_norm())
    finding = found["D05"]
    assert finding.layers[-1] == 24
    assert finding.evidence[0]["value"] < 0.1 < finding.evidence[0]["expected"]
    assert "post-norm" in finding.cause


def test_d05_one_token_repeated_is_no_illness() -> None:
    assert "D05" not in look(deep_post_norm(), torch.full((2, 32), 7))


def test_d06_a_large_embedding_drowns_every_write() -> None:
    model = gpt2(8)
    model.transformer.wte.weight.data.mul_(30)
    model.transformer.wpe.weight.data.mul_(30)
    finding = look(model)["D06"]
    assert finding.layers == tuple(range(1, 9))
    assert "embedding" in finding.cause
    assert finding.evidence[1]["value"] / finding.evidence[1]["expected"] == pytest.approx(
        30, rel=0.1
    )


def test_d06_writes_that_are_small_themselves_do_not_drown() -> None:
    model = gpt2(8)
    for block in model.transformer.h:
        block.mlp.c_proj.weight.data.mul_(1e-3)
        block.attn.c_proj.weight.data.mul_(1e-3)
    assert "D06" not in look(model)


def test_d07_the_second_half_of_a_trained_model_writes_nothing() -> None:
    model, _ = pair.pre()
    for block in list(model.blocks)[3:]:
        for layer in (block.attention.branch.output, block.mlp.branch.down):
            layer.weight.data.mul_(1e-3)
            layer.bias.data.mul_(1e-3)
    finding = look(model.eval(), language())["D07"]
    assert finding.layers == (4, 5)


@pytest.mark.parametrize("name", ["pre", "post"])
def test_trained_models_have_nothing_wrong_over_depth(name: str) -> None:
    model, _ = getattr(pair, name)()
    assert look(model, language()) == {}
    assert look(model, torch.full((2, 32), 101)) == {}


def test_d08_a_small_embedding_is_overwritten_by_the_first_block() -> None:
    model = gpt2(8)
    model.transformer.wte.weight.data.mul_(0.01)
    model.transformer.wpe.weight.data.mul_(0.01)
    finding = look(model)["D08"]
    assert (finding.layers, finding.severity) == ((1,), "warning")


def test_d09_deep_post_norm_is_warned_of_and_deepnorm_is_not() -> None:
    assert look(recipe(18, placement="post"))["D09"].severity == "warning"
    assert "D09" not in look(recipe(18, placement="post", connection="deepnorm"))
    assert "D09" not in look(recipe(12, placement="post"))
