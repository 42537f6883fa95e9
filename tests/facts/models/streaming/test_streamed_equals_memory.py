"""A streamed measurement gives the numbers of the one in memory, to the last bit."""

from __future__ import annotations

import math

import pytest
import torch

import leadline
from leadline.models.loading import load_model
from leadline.models.streaming.pager import pager_of
from leadline.parts import Transformer
from leadline.testing.zoo import ZOO

pytest.importorskip("transformers")

PROBES = "stream,tokens,rank,update,gradient,influence,lanes,attention,extremes"
FAMILIES = {
    "llama": "before the branch",
    "gpt2": "before the branch, with transposed matrices and a tied head",
    "bert": "after the addition",
    "gemma2": "sandwich",
    "mixtral": "experts, which transformers merges",
    "t5": "two stacks",
    "deepseek_v4": "lanes",
    "albert": "one block at all depths",
    "switch_transformers": "blocks that are handed a cache",
}


def numbers(record):
    return {(r.quantity, r.site, r.statistic): r.value for r in record.select()}


def assert_same(streamed, whole):
    left, right = numbers(streamed), numbers(whole)
    assert left.keys() == right.keys()
    odd = {
        key: (value, right[key])
        for key, value in left.items()
        if value != right[key] and not (math.isnan(value) and math.isnan(right[key]))
    }
    assert not odd


def measured(folder, inputs=None, *, stream, dtype=None, probes=PROBES):
    loaded = load_model(folder, stream=stream, dtype=dtype)
    batch = (
        inputs(loaded.model)
        if inputs
        else leadline.random_inputs(loaded.model, examples=2, length=12)
    )
    return leadline.measure(loaded, batch, probes=probes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("name", FAMILIES)
def test_every_reading_of_every_family_is_the_same(tmp_path, name, dtype):
    specimen = ZOO[name]
    specimen.build(0).to(dtype).save_pretrained(tmp_path, max_shard_size="100KB")
    records = [
        measured(tmp_path, lambda model: specimen.inputs(model, 1), stream=stream)
        for stream in (True, False)
    ]
    assert_same(*records)
    facts = records[0].provenance["streaming"]
    assert facts["recomputed_blocks"] == (2 if name == "switch_transformers" else facts["blocks"])
    assert "streaming" not in records[1].provenance
    assert len(facts["files"]) == len(list(tmp_path.glob("*.safetensors")))
    assert facts["peak_bytes"]["own"] > 0
    assert facts["bytes_requested"] > facts["bytes"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("connection", ["identity", "hyper(lanes=3)"])
def test_a_folder_of_our_own_is_streamed_like_others(tmp_path, connection, dtype):
    model = Transformer(
        depth=3, width=32, heads=2, vocabulary=41, context=16, connection=connection, seed=3
    )
    model.to(dtype).save(tmp_path / "ours")
    assert_same(*(measured(tmp_path / "ours", stream=stream) for stream in (True, False)))


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_another_number_type_is_converted_into_files_first(tmp_path, dtype):
    model = Transformer(depth=2, width=128, heads=2, vocabulary=300, context=16, seed=3)
    for folder, save in (
        (tmp_path / "ours", model.save),
        (tmp_path / "llama", ZOO["llama"].build(0).save_pretrained),
    ):
        save(folder)
        records = [measured(folder, stream=stream, dtype=dtype) for stream in (True, False)]
        assert_same(*records)
    loaded = load_model(tmp_path / "ours", stream=True, dtype=dtype)
    pager = pager_of(loaded.model)
    assert pager is not None
    assert pager.scratch > 0.9 * pager.bytes


def test_the_diagnosis_of_a_streamed_model_is_the_same(tmp_path):
    ZOO["llama"].build(0).save_pretrained(tmp_path)
    answers = []
    for stream in (True, False):
        loaded = load_model(tmp_path, stream=stream)
        answers.append(
            leadline.diagnose(loaded, leadline.random_inputs(loaded.model, examples=2, length=16))
        )
    assert_same(answers[0].record, answers[1].record)
    assert [f.to_json() for f in answers[0].findings] == [f.to_json() for f in answers[1].findings]


def test_a_jacobian_block_by_block_is_the_same(tmp_path):
    ZOO["gpt2"].build(0).save_pretrained(tmp_path)
    assert_same(*(measured(tmp_path, stream=s, probes="jacobian") for s in (True, False)))


def test_measuring_leaves_the_streamed_model_as_it_was(tmp_path):
    ZOO["llama"].build(0).save_pretrained(tmp_path)
    loaded = load_model(tmp_path, stream=True)
    ids = torch.arange(6).unsqueeze(0)
    before = loaded.model(ids).logits
    weights = {name: p.detach().clone() for name, p in loaded.model.named_parameters()}
    leadline.measure(loaded, leadline.random_inputs(loaded.model, examples=2, length=8))
    assert torch.equal(loaded.model(ids).logits, before)
    assert all(torch.equal(weights[name], p) for name, p in loaded.model.named_parameters())
    assert not any("forward" in vars(module) for module in loaded.model.modules())
    assert all(p.grad is None for p in loaded.model.parameters())


def test_the_progress_names_the_pass_and_counts_the_blocks(tmp_path):
    ZOO["llama"].build(0).save_pretrained(tmp_path)
    loaded = load_model(tmp_path, stream=True)
    told = []
    leadline.measure(
        loaded,
        leadline.random_inputs(loaded.model, examples=2, length=8),
        progress=lambda *step: told.append(step),
    )
    for doing in ("reading the anatomy, forward", "measuring, forward", "measuring, backward"):
        steps = [(done, total) for what, done, total in told if what == doing]
        assert steps[-3:] == [(0, 3), (1, 3), (2, 3)]


def test_a_model_that_was_measured_tells_nobody_of_later_passes(tmp_path):
    ZOO["llama"].build(0).save_pretrained(tmp_path)
    loaded = load_model(tmp_path, stream=True)
    batch = leadline.random_inputs(loaded.model, examples=2, length=8)
    told = []

    def stops(*step):
        told.append(step)
        if len(told) == interrupted:
            raise KeyboardInterrupt

    for interrupted in (None, 8):
        told.clear()
        for instrument in (leadline.measure, leadline.diagnose):
            try:
                instrument(loaded, batch, progress=stops)
            except KeyboardInterrupt:
                assert interrupted is not None
            count = len(told)
            assert count
            loaded.model(torch.arange(6).unsqueeze(0))
            assert len(told) == count


def test_a_model_that_makes_tensors_while_it_is_built_is_streamed(tmp_path):
    ZOO["xlnet"].build(0).save_pretrained(tmp_path)
    assert_same(*(measured(tmp_path, stream=stream) for stream in (True, False)))
