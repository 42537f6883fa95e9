"""Path lengths of Hugging Face models: followed to rounding, equal to our own of the same weights,
or refused in a sentence."""

from __future__ import annotations

import math
import warnings

import pytest
import torch

import leadline
from leadline.errors import LeadlineError
from leadline.testing.zoo import ZOO

FOLLOWED = [
    "gpt2",
    "gpt_neo",
    "bloom",
    "opt-post",
    "llama",
    "qwen3",
    "nemotron",
    "gpt_neox",
    "gptj",
    "falcon-new",
    "openai-gpt",
    "gemma3_text",
    "olmo2",
    "minicpm3",
    "llama4_text",
    "xlnet",
    "bert",
    "albert",
    "deberta",
    "modernbert",
    "vit",
    "wav2vec2",
]


def built(name, dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ZOO[name].build(0).to(dtype)
        inputs = ZOO[name].inputs(model, 1)
    return model, {
        key: one.to(dtype) if one.is_floating_point() else one for key, one in inputs.items()
    }


@pytest.mark.parametrize("name", FOLLOWED)
def test_a_model_is_followed_to_rounding(name):
    model, inputs = built(name, torch.float32 if name == "minicpm3" else torch.float64)
    found = leadline.paths(model, inputs).paths
    assert found.heads == (4,) * found.depth
    assert found.output.remainder_eps < 10
    total = math.fsum(found.share) + found.output.bias_total
    assert total == pytest.approx(1, abs=1e-12 if found.precision == "float64" else 1e-6)
    if found.logits is not None:
        assert found.logits.remainder_eps < 10
    if found.loss is not None:
        assert found.loss_at_most[-1] == pytest.approx(found.loss, rel=1e-5)
    # Some models norm in float32 whatever their weights are; then that is the unit of rounding.
    assert found.precision in ("float32", "float64")


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "gpt_neox", "olmo2", "openai-gpt"])
def test_the_same_weights_as_our_own_parts_have_the_same_shares(name):
    model, inputs = built(name, torch.float64)
    theirs = leadline.paths(model, inputs).paths
    ours = leadline.paths(leadline.Transformer.from_hf(model, dtype=torch.float64), inputs).paths
    assert ours.heads == theirs.heads and ours.counts == theirs.counts
    near = 1e-11 if theirs.precision == "float64" else 1e-5
    for one, other in ((ours.output, theirs.output), (ours.residual, theirs.residual)):
        assert one.share == pytest.approx(other.share, abs=near)
        assert one.norm_share == pytest.approx(other.norm_share, rel=near)
        assert one.bias_share == pytest.approx(other.bias_share, abs=near)
    assert ours.logits.share == pytest.approx(theirs.logits.share, abs=near)


def test_eager_and_fused_attention_are_the_same():
    model, inputs = built("llama", torch.float64)
    fused = leadline.paths(model, inputs).paths
    model.set_attn_implementation("eager")
    assert leadline.paths(model, inputs).paths.share == pytest.approx(fused.share, abs=1e-7)


def test_the_loss_is_that_of_the_model_itself():
    model, inputs = built("gpt2", torch.float64)
    with torch.no_grad():
        own = float(model(**inputs, labels=inputs["input_ids"]).loss)
    found = leadline.paths(model, inputs).paths
    assert found.loss == pytest.approx(own, rel=1e-6)
    assert found.loss_at_most[-1] == pytest.approx(own, rel=1e-6)


def test_the_masked_loss_is_that_of_the_measurement():
    model, _ = built("bert", torch.float64)
    inputs = leadline.random_tokens(model, examples=2, length=16, seed=3)
    found = leadline.paths(model, inputs, seed=3).paths
    own = leadline.measure(model, inputs, seed=3, probes="stream").provenance["loss"]
    assert found.loss_kind == own["kind"] == "masked"
    assert found.loss_at_most[-1] == pytest.approx(own["value"], rel=1e-6)


def test_a_soft_cap_leaves_the_logits_out_and_says_so():
    model, inputs = built("gemma2", torch.float32)
    found = leadline.paths(model, inputs).paths
    assert found.logits is None and found.loss_at_most is None
    assert "Logits: left out, they are not affine when frozen: the operation 'tanh'" in str(found)


REFUSED = {
    "t5": "2 stacks (encoder and decoder)",
    "rwkv": "not affine when frozen",
    "mamba": "the operation 'convolution' in 'backbone.layers.0.mixer'",
    "falcon_h1": "the operation 'convolution' in 'model.layers.0.mamba'",
    "mixtral": "in 'model.layers.0.mlp.gate'",
    "lfm2_moe": "'model.layers.0.conv' gives it a factor that is neither a gate of the same token",
    "fnet": "not affine when frozen",
    "xlm": "is no module of its own",
    "deepseek_v4": "4 lanes",
    "clip": "2 stacks (vision and text)",
    "apertus": "the operation 'minimum' in 'model.layers.0.mlp.act_fn'",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_single_affine_stream_is_refused_in_a_sentence(name):
    model, inputs = built(name, torch.float32)
    with pytest.raises(LeadlineError) as caught:
        leadline.paths(model, inputs)
    assert REFUSED[name] in str(caught.value)


def test_layers_that_share_values_have_the_paths_that_they_have():
    theirs = type(ZOO["gemma4_text"].build(0))
    config = theirs.config_class(
        vocab_size=60,
        hidden_size=32,
        intermediate_size=40,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        global_head_dim=8,
        layer_types=["sliding_attention", "full_attention"] * 2,
        num_kv_shared_layers=2,
        hidden_size_per_layer_input=0,
        vocab_size_per_layer_input=60,
        final_logit_softcapping=None,
    )
    torch.manual_seed(0)
    model = theirs(config).eval()
    found = leadline.paths(model, {"input_ids": torch.arange(3, 11)[None]}, samples=2).paths
    # Layers 3 and 4 have the values of layers 1 and 2:
    # 1 + 4t + 4t (1 + 4t) + 4t + 4t (1 + 4t).
    assert found.counts == (1, 16, 32, 0, 0)
    assert found.norm_share[3:] == (0, 0) and min(found.norm_share[:3]) > 0
    assert found.sampled is None and len(found.loss_at_most) == 5
    assert found.loss_at_most[-1] == pytest.approx(found.loss, rel=1e-5)


def test_a_pattern_that_is_used_twice_leaves_the_counts_open():
    model, inputs = built("diffllama", torch.float32)
    found = leadline.paths(model, inputs, samples=1).paths
    assert found.heads == (None,) * 3 and found.counts is None and found.sampled is None
    assert "meets 8 times in products and the configuration gives 4 heads" in str(found)


@pytest.mark.parametrize(("size", "followed"), [(256, True), (4, False)])
def test_lightning_attention_is_followed_where_it_has_a_pattern(size, followed):
    from types import SimpleNamespace

    from transformers.models.llama.modeling_llama import LlamaMLP

    config = ZOO["minimax"].build(0).config
    config.block_size = size
    torch.manual_seed(0)
    model = type(ZOO["minimax"].build(0))(config).double().eval()
    plain = SimpleNamespace(
        hidden_size=config.hidden_size, intermediate_size=40, hidden_act="silu", mlp_bias=False
    )
    for layer in model.model.layers:
        layer.mlp = LlamaMLP(plain).double()
    inputs = {"input_ids": torch.arange(2, 18)[None]}
    if followed:
        assert leadline.paths(model, inputs).paths.heads == (4, 4, 4)
        return
    with pytest.raises(LeadlineError, match=r"'model\.layers\.1\.self_attn' multiplies it"):
        leadline.paths(model, inputs)


def test_an_encoder_is_advised_where_the_model_has_one():
    for name, advised in (("t5", True), ("clip", False)):
        model, inputs = built(name, torch.float32)
        with pytest.raises(LeadlineError) as caught:
            leadline.paths(model, inputs)
        assert ("get_encoder" in str(caught.value)) == advised


def test_the_encoder_of_a_pair_is_followed_on_its_own():
    model, inputs = built("t5", torch.float32)
    found = leadline.paths(model.get_encoder(), {"input_ids": inputs["input_ids"]}).paths
    assert found.heads == (4, 4)
    assert found.output.remainder_eps < 10
