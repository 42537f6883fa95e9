"""Attention of every specimen of the zoo is seen and proved, or refused with a reason.

No theorem is violated by any of them: a wrong reading of a model's weights, norms, scaling or mask
would make its bound too small sooner or later.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

import leadline as ll
from leadline.anatomy import AttentionSpy, SeenAttention, untouched
from leadline.anatomy.tensors import first_tensor
from leadline.instruments.passes.running import call
from leadline.models.inputs import as_inputs
from leadline.record import Record
from leadline.testing.zoo import ZOO

NO_ANATOMY = {"gemma3n_text", "squeezebert", "timesformer"}
NO_ATTENTION = {"mamba", "falcon_mamba", "mamba2", "xlstm", "fnet"}
NOT_SEEN = {"rwkv": "softmax", "longformer": "softmax"}
"""Attention without a softmax; attention in overlapping chunks."""
IN_PART = {
    "diffllama": "several calls",
    "qwen4_exp_text": "softmax",
    "qwen3_next": "softmax",
    "kimi_linear": "softmax",
    "minimax": "softmax",
    "glm5_next_text": "4 rows and the stream 12 tokens",
    "prophetnet": "10 rows and the stream 30 tokens",
    "longt5": "softmax",
    "led": "softmax",
    "swin": "softmax",
    "swinv2": "softmax",
}
"""Two kernels for one write; linear attention in some layers; chunks or windows in others."""


@functools.cache
def _record(name: str) -> Record:
    model = ZOO[name].build(0)
    return ll.measure(model, dict(ZOO[name].inputs(model, 1)), probes="attention")


SEEN = sorted(set(ZOO) - NO_ANATOMY - NO_ATTENTION - set(NOT_SEEN))


@pytest.mark.parametrize("name", SEEN)
def test_attention_is_seen_proved_and_within_every_bound(name: str) -> None:
    record = _record(name)
    seen = record.provenance["attention"]
    assert all(one["proof_eps"] is None or one["proof_eps"] < 4 for one in seen)
    assert not record.findings
    reasons = [one["why"] for one in record.provenance["coverage"]["refused"]]
    # Parts that no input reaches are named in the coverage, too; they hold no attention.
    refused = " ".join(why for why in reasons if "did not run" not in why)
    assert (IN_PART[name] in refused) if name in IN_PART else not refused
    table = ll.bounds(record)
    assert not table.violated, str(table)
    by_name = {bound.name: bound for bound in table.bounds}
    assert by_name["column-sum"].applying


@pytest.mark.parametrize("name", sorted(NOT_SEEN))
def test_attention_that_cannot_be_seen_is_refused_by_name(name: str) -> None:
    with pytest.raises(ll.ProbeError, match=NOT_SEEN[name]) as error:
        _record(name)
    assert "attention" in str(error.value) and "scaled_dot_product_attention" in str(error.value)


@pytest.mark.parametrize("name", sorted(NO_ATTENTION))
def test_a_model_without_attention_says_what_it_has(name: str) -> None:
    with pytest.raises(ll.ProbeError, match="has no attention; its branches are: mixer"):
        _record(name)


@pytest.mark.parametrize(
    "name", ["gpt2", "openai-gpt", "t5", "llama", "bert", "gemma2", "gpt_oss", "bloom", "bart"]
)
def test_outputs_are_the_same_to_the_bit(name: str) -> None:
    model = ZOO[name].build(0)
    batch = as_inputs(dict(ZOO[name].inputs(model, 1)), model)
    with torch.no_grad(), untouched(model):
        plain = first_tensor(call(model, batch))
        with AttentionSpy(model, lambda seen: None):
            watched = first_tensor(call(model, batch))
    assert plain is not None and watched is not None
    assert torch.equal(plain, watched)


def test_most_sources_of_queries_and_keys_are_found() -> None:
    told = [one for name in SEEN for one in _record(name).provenance["attention"]]
    known = [one for one in told if one["positions"] != "unknown"]
    assert len(known) > 0.85 * len(told)


def _seen(name: str, **settings: Any) -> list[SeenAttention]:
    model = ZOO[name].build(0)
    batch = as_inputs(dict(ZOO[name].inputs(model, 1)), model)
    found: list[SeenAttention] = []
    with torch.no_grad(), untouched(model), AttentionSpy(model, found.append):
        call(model, batch)
    return found


@pytest.mark.parametrize(
    "name", ["gpt2", "llama", "bert", "gpt_neox", "qwen2", "opt", "olmo2", "qwen3", "gemma3_text"]
)
def test_no_query_is_longer_than_its_weights_allow(name: str) -> None:
    """|q| <= sigma_Q (Gamma sqrt(d) + |beta|) + |b_Q|, or the radius of the query's own norm."""
    for seen in _seen(name):
        for vectors, source in ((seen.query, seen.query_source), (seen.key, seen.key_source)):
            assert vectors is not None and source is not None and source.norm is not None
            longest = torch.linalg.vector_norm(vectors.double(), dim=-1).amax((0, 2))
            gain, shift = source.norm.gain.max(), torch.linalg.vector_norm(source.norm.shift)
            reach = gain * source.norm.width**0.5 + shift
            if source.weight is not None:
                sigma = torch.linalg.matrix_norm(source.weight, ord=2)
                bias = 0.0 if source.bias is None else torch.linalg.vector_norm(source.bias, dim=-1)
                reach = sigma * reach + bias
            assert bool((longest <= reach * (1 + 1e-5)).all())
            # Nor is the bound empty: a wrong unit would be far away.
            assert float((longest / reach).max()) > 0.02


def test_t5_without_its_position_bias_is_not_proved() -> None:
    """T5 hands its bias over as a keyword with no mask: queries and keys alone are not enough."""
    from dataclasses import replace

    from leadline.numerics.patterns.patterns import PROOF_LIMIT, Patterns

    seen = _seen("t5")[0]
    assert seen.mask is not None and seen.mask.is_floating_point()
    right, wrong = Patterns(seen).measured.proof, Patterns(replace(seen, mask=None)).measured.proof
    assert right is not None and right < 4
    assert wrong is not None and wrong > 100 * PROOF_LIMIT


@pytest.mark.parametrize(
    ("name", "fact", "value"),
    [
        ("gpt2", "positions", "none"),
        ("llama", "positions", "rotary"),
        ("bloom", "positions", "bias"),
        ("t5", "positions", "bias"),
        ("mistral", "mask", "other"),
        ("bert", "mask", "none"),
        ("gpt2", "mask", "causal"),
        ("gpt_oss", "stochastic", False),
        ("llama", "stochastic", True),
        ("qwen3", "qk_norm", True),
        ("llama", "groups", 2),
        ("openai-gpt", "seen", "weights"),
        ("gpt2", "seen", "kernel"),
        ("openai-gpt", "norm", None),
        ("bert", "norm", "bert.embeddings.LayerNorm"),
    ],
)  # fmt: skip
def test_facts_of_known_models(name: str, fact: str, value: object) -> None:
    assert _record(name).provenance["attention"][0][fact] == value


def test_gemma2_caps_its_logits_at_fifty() -> None:
    (first, *_) = _record("gemma2").select("attention.soft_cap")
    assert first.value == 50.0


def test_an_encoder_decoder_has_three_kinds_of_attention() -> None:
    told = _record("t5").provenance["attention"]
    kinds = {(one["stack"], one["point"], one["mask"]) for one in told}
    assert kinds == {
        ("encoder", "attention", "none"),
        ("decoder", "attention", "causal"),
        ("decoder", "cross-attention", "none"),
    }
