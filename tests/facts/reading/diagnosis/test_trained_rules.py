"""Rules that need a trained model, lanes, experts, attention or an option: each with its look-alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import leadline
from leadline.instruments.visit.checks.output import is_natural, unigram_entropy
from leadline.lab import pair
from leadline.record import Finding, Quantity, Reading, Record, Site
from tests.visits import findings, gpt2, language, visited


def trained(change: Callable[[Any], object] = lambda model: model) -> Any:
    """The embedded model, trained on bytes of source code, after a change."""
    model, _ = pair.pre()
    with torch.no_grad():
        change(model)
    return model.eval()


def found(model: Any, code: str, inputs: Any = None, **options: Any) -> Finding | None:
    return findings(visited(model, inputs, **options), code).get(code)


# --- precision ---------------------------------------------------------------------------------


def test_p02_writes_below_half_a_unit_of_a_bfloat16_stream_are_lost() -> None:
    def enlarge(model: Any) -> Any:
        model.transformer.wte.weight.data.mul_(1e4)
        model.transformer.wpe.weight.data.mul_(1e4)
        return model

    running = found(enlarge(gpt2(6)).to(torch.bfloat16), "P02")
    assert running is not None and running.severity == "warning" and len(running.layers) >= 3
    # The same stream in float32 loses nothing yet: a note about a cast that may come.
    assert found(enlarge(gpt2(6)), "P02").severity == "note"  # pyright: ignore[reportOptionalMemberAccess]
    assert found(gpt2(6).to(torch.bfloat16), "P02") is None


def test_p03_a_massive_entry_is_named_with_its_token_and_feature() -> None:
    model = gpt2(6)

    def spike(_module: Any, _arguments: Any, output: Any) -> Any:
        stream = (output[0] if isinstance(output, tuple) else output).clone()
        stream[:, 0, 7] += 5000.0
        return (stream, *output[1:]) if isinstance(output, tuple) else stream

    mlp = model.transformer.h[2].mlp
    forward = mlp.forward
    mlp.forward = lambda x: spike(None, None, forward(x))
    finding = found(model, "P03")
    assert finding is not None and finding.severity == "note"
    assert finding.layers == (3, 4, 5, 6)
    assert "at token 1, feature 8" in finding.verdict  # counted from 1
    assert found(gpt2(6), "P03") is None


# --- output ------------------------------------------------------------------------------------


def test_o02_a_shuffled_vocabulary_is_worse_than_frequencies_but_not_a_fresh_model() -> None:
    assert found(trained(), "O02", language()) is None
    order = torch.randperm(256, generator=torch.Generator().manual_seed(3))

    def shuffle(model: Any) -> None:
        weight = model.head.projection.weight
        weight.copy_(weight[order])

    model = trained(shuffle)
    finding = found(model, "O02", language())
    assert finding is not None and finding.severity == "warning"
    # By hand: the cross-entropy of the next byte, against the entropy of frequencies of the bytes.
    with torch.no_grad():
        logits = model(language())
    logits = getattr(logits, "logits", logits)
    targets = language()[:, 1:].flatten()
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), targets)
    assert finding.evidence[0]["value"] == pytest.approx(float(loss), rel=1e-3)
    assert finding.evidence[0]["expected"] == unigram_entropy(language())["entropy"]
    assert found(gpt2(4), "O02", language(2, 64) % 200) is None


def test_o04_an_offset_of_all_logits_is_noted_and_one_that_is_small_is_not() -> None:
    ids = language(2, 32)

    def logits_of(model: Any) -> torch.Tensor:
        with torch.no_grad():
            output = model(ids)
        return getattr(output, "logits", output)

    def shift(by: float) -> Any:
        model = trained()
        forward = model.head.forward
        model.head.forward = lambda *arguments: forward(*arguments) + by
        return model

    assert found(trained(), "O04", ids) is None
    model = shift(60.0)
    finding = found(model, "O04", ids)
    assert finding is not None and finding.severity == "note"
    plain = torch.logsumexp(logits_of(trained()), -1).mean()
    assert finding.evidence[0]["value"] == pytest.approx(float(plain) + 60.0, rel=1e-5)
    assert found(shift(2.0), "O04", ids) is None


def test_the_entropy_of_frequencies_is_that_of_their_counts() -> None:
    tokens = torch.tensor([0] * 32 + [1] * 16 + [2] * 16)
    facts = unigram_entropy(tokens)
    # 1/2, 1/4, 1/4: 1.5 bits, and (types - 1) / (2 tokens) for the few samples.
    assert facts["entropy"] == pytest.approx(1.5 * math.log(2) + 2 / 128)
    # The surprise is 1 or 2 bits, each with probability 1/2: its deviation is half a bit.
    assert facts["error"] == pytest.approx(0.5 * math.log(2) / 8)


def test_language_is_told_from_draws_repeats_and_short_inputs() -> None:
    draws = torch.randint(200, (512,), generator=torch.Generator().manual_seed(0))
    assert is_natural(language(2, 256))
    assert not is_natural(draws)
    assert not is_natural(draws[:32].repeat(16))
    assert not is_natural(language(1, 40))
    assert not is_natural(torch.arange(512))


# --- training and leaving out ------------------------------------------------------------------


def test_x04_a_model_whose_output_ignores_its_blocks_does_not_learn() -> None:
    model = gpt2(2)
    norm = model.transformer.ln_f
    forward = norm.forward
    norm.forward = lambda stream: forward(stream).detach() * 0.0
    finding = found(model, "X04", train=12)
    assert finding is not None and finding.severity == "serious"
    before, after = finding.evidence[0]["expected"], finding.evidence[0]["value"]
    # All logits are 0: the loss is ln V, and stays there.
    assert before == pytest.approx(math.log(200), rel=1e-5)
    assert after == pytest.approx(before, rel=1e-3)


def test_x05_a_write_with_its_sign_turned_does_harm() -> None:
    assert found(trained(), "X05", language(), ablate=True) is None

    def turn(model: Any) -> None:
        down = model.blocks[0].mlp.branch.down
        down.weight.mul_(-4)
        down.bias.mul_(-4)

    finding = found(trained(turn), "X05", language(), ablate=True)
    assert finding is not None
    assert (finding.layers, finding.sublayer, finding.severity) == ((1,), "mlp", "warning")


# --- lanes and experts -------------------------------------------------------------------------


def lanes(depth: int = 6) -> Any:
    return leadline.Transformer(
        depth=depth, width=32, heads=2, connection="hyper", vocabulary=64, seed=0
    ).eval()


def test_l01_lanes_that_are_doubled_grow_with_depth() -> None:
    model = lanes()
    assert found(model, "L01") is None
    with torch.no_grad():
        for block in model.blocks:
            for sublayer in (block.attention, block.mlp):
                sublayer.connection.static_mix.mul_(2.0)
    finding = found(model, "L01")
    assert finding is not None and finding.layers == (1, 2, 3, 4, 5, 6)
    # Two doublings in each of the five layers after the first: 2^10 and what is written beside.
    assert finding.evidence[0]["value"] == pytest.approx(2**10, rel=0.1)


@pytest.mark.parametrize(
    ("moved", "cosine", "named"), [(0.3, 1.0, True), (0.3, 0.5, False), (0.0, 1.0, False)]
)
def test_l02_lanes_of_a_trained_model_that_hold_one_vector(
    moved: float, cosine: float, named: bool
) -> None:
    record = Record()
    for name in ("lane.cosine", "weights.rms"):
        record.describe(Quantity(name, name, "x", "x", lives_on="layer", headline="value"))
    layers = range(1, 5)
    record.append(Reading("lane.cosine", Site("decoder", at), "value", cosine) for at in layers)
    for statistic, size in (("value", 1.0 + moved), ("twin", 1.0)):
        record.append(
            Reading("weights.rms", Site("decoder", at, None, "norm.weight"), statistic, size)
            for at in layers
        )
    record.note("anatomy", {"stacks": {"decoder": {"depth": 4, "lanes": 2}}, "layers": []})
    record.note("visit", {"twin": {"built": True}})
    assert ("L02" in findings(record, "L02")) is named


def test_m01_experts_that_a_router_never_chooses_are_counted() -> None:
    from leadline.testing.zoo import ZOO

    model = ZOO["mixtral"].build(0)
    inputs = torch.randint(0, 60, (4, 32), generator=torch.Generator().manual_seed(0))
    record = visited(model, inputs)
    rows = record.provenance["visit"]["experts"]
    # Every token chooses as many experts as the configuration says, in every layer.
    chosen = 4 * 32 * model.config.num_experts_per_tok
    assert [sum(row["tokens"]) for row in rows] == [chosen] * len(rows)
    assert "M01" not in findings(record, "M01")
    router = model.get_submodule(rows[0]["module"])
    with torch.no_grad():
        router.weight.zero_()  # ties: every token gets the same experts
    record = visited(model, inputs)
    load = record.provenance["visit"]["experts"][0]["tokens"]
    assert sorted(load, reverse=True)[: model.config.num_experts_per_tok] == [4 * 32] * (
        model.config.num_experts_per_tok
    )
    finding = findings(record, "M01")["M01"]
    assert finding.severity == "note" and finding.layers == (1,)


# --- attention ---------------------------------------------------------------------------------


def test_a02_queries_and_keys_that_are_large_in_one_layer_saturate_it() -> None:
    model = gpt2(8)
    assert found(model, "A02") is None and found(model, "A03") is None
    with torch.no_grad():
        model.transformer.h[3].attn.c_attn.weight[:, :64].mul_(40)
    finding = found(model, "A02")
    assert finding is not None and (finding.layers, finding.sublayer) == ((4,), "attention")


def test_a03_queries_that_are_tiny_in_one_layer_make_it_uniform() -> None:
    model = gpt2(8)
    with torch.no_grad():
        model.transformer.h[3].attn.c_attn.weight[:, :32].mul_(1e-4)
    finding = found(model, "A03")
    assert finding is not None and (finding.layers, finding.sublayer) == ((4,), "attention")
    # The biases are 0, so the logits are smaller by the factor of the queries.
    evidence = finding.evidence[0]
    assert evidence["value"] == pytest.approx(1e-4 * evidence["expected"], rel=0.3)


def test_w06_is_silent_on_a_trained_model_and_on_a_fresh_one() -> None:
    assert found(trained(), "W06", language()) is None
    assert found(gpt2(6), "W06") is None


def test_n04_a_trained_gain_with_both_signs_and_heavy_tails_was_not_drawn() -> None:
    model = gpt2(6, width=64)
    gain = model.transformer.h[0].ln_1.weight
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(64, generator=generator)
    with torch.no_grad():
        gain.copy_(0.02 * normal)
    assert found(model, "N04") is not None
    heavy = normal.abs() ** 3 * normal.sign()
    heavy = 0.04 * (heavy - heavy.mean()) / heavy.std()
    # Four sampling errors of the kurtosis of 64 normal draws above 3.
    assert float(heavy.pow(4).mean() / heavy.square().mean() ** 2) > 3 + 4 * (24 / 64) ** 0.5
    with torch.no_grad():
        gain.copy_(heavy)
    assert found(model, "N04") is None
