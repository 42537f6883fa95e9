"""A GGUF file is dequantised tensor by tensor into files, and measured as it is in memory."""

from __future__ import annotations

import pytest
import torch

import leadline
from leadline.errors import LoadingError
from leadline.models.loading import load_model
from leadline.models.streaming.pager import pager_of
from leadline.testing.zoo import ZOO

pytest.importorskip("transformers")
pytest.importorskip("accelerate")
gguf = pytest.importorskip("gguf")

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


@pytest.fixture
def file(tmp_path):
    """A tiny Llama, its matrices in eight bits."""
    model = ZOO["llama"].build(0)
    config = model.config
    path = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(64)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_vocab_size(config.vocab_size)
    for name, parameter in model.named_parameters():
        short = name.removesuffix(".weight")
        if short.startswith("model.layers."):
            number, _, inner = short.removeprefix("model.layers.").partition(".")
            short = f"blk.{number}.{NAMES[inner]}"
        else:
            short = NAMES[short]
        values = parameter.detach().numpy()
        if values.ndim == 2 and values.shape[1] % 32 == 0:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(f"{short}.weight", gguf.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(f"{short}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_a_streamed_file_gives_the_readings_of_the_one_in_memory(file, dtype):
    whole = load_model(file, stream=False, dtype=dtype)
    streamed = load_model(file, stream=True, dtype=dtype)
    left, right = streamed.model.state_dict(), whole.model.state_dict()
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)
    batch = leadline.random_inputs(whole.model, examples=2, length=12)
    records = [leadline.measure(model, batch) for model in (streamed, whole)]
    numbers = [
        {(r.quantity, r.site, r.statistic): r.value for r in record.select()} for record in records
    ]
    assert numbers[0] == numbers[1]
    facts = records[0].provenance["streaming"]
    assert facts["files"] == ["tiny.gguf"]
    assert facts["converted_bytes"] > 0.9 * facts["bytes"]
    assert pager_of(whole.model) is None


def test_a_truncated_file_is_refused(file):
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(LoadingError, match="cannot be read"):
        load_model(file, stream=True)


def test_a_quantisation_that_cannot_be_undone_is_named(file, monkeypatch):
    def refuse(*_):
        raise NotImplementedError

    monkeypatch.setattr("gguf.dequantize", refuse)
    with pytest.raises(LoadingError, match="quantised as Q8_0, which the package gguf cannot"):
        load_model(file, stream=True)


def test_a_file_that_fits_no_disk_is_refused_before_it_is_read(file, monkeypatch):
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(LoadingError, match="1 kB are free there; set TMPDIR"):
        load_model(file, stream=True)
