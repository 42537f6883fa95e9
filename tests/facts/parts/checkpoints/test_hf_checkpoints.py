"""Hugging Face checkpoints: odd but right ones are read, wrong ones refused in a sentence."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import pytest
import torch

from leadline.errors import LoadingError, RecipeError, UnknownName
from leadline.parts import Transformer
from leadline.parts.checkpoints import CHECKPOINTS, to_hf
from leadline.parts.checkpoints.gptj import share_of

safetensors = pytest.importorskip("safetensors.torch")

IDS = torch.arange(10).view(2, 5)

RECIPES = {
    "gpt2": {"head": "tied"},
    "openai-gpt": {"head": "tied", "placement": "post"},
    "bert": {
        "attention": "multihead(causal=false)",
        "mlp": "gelu",
        "placement": "post",
        "embedding": "token(types=2, normed=true)",
        "head": "masked",
        "norm": "layernorm(eps=1e-12)",
    },
    "llama": {
        "attention": "multihead(bias=false, groups=1)",
        "positions": "rotary",
        "mlp": "swiglu",
        "norm": "rmsnorm",
    },
    "gptj": {
        "attention": "multihead(bias=false)",
        "positions": "rotary(share=0.5, pairs=neighbours)",
        "placement": "parallel",
        "head": "linear(bias=true)",
    },
    "gpt_neox": {
        "positions": "rotary(share=0.25)",
        "mlp": "gelu",
        "placement": "parallel(norms=2)",
    },
}


def _model(kind="gpt2", **fields):
    sizes = {"depth": 2, "width": 16, "heads": 2, "vocabulary": 23, "context": 12}
    return Transformer(**{**sizes, **RECIPES[kind], **fields}).eval()


def _recipe(kind, **fields):
    return CHECKPOINTS.get(kind)().recipe(fields)


def _refusal(call, *arguments, kind=RecipeError, **options):
    with pytest.raises(kind) as caught:
        call(*arguments, **options)
    return str(caught.value)


@pytest.fixture
def folder(tmp_path):
    """A folder with a tiny GPT-2."""
    to_hf(_model(), tmp_path)
    return tmp_path


def _change(folder, **fields):
    content = json.loads((folder / "config.json").read_text()) | fields
    (folder / "config.json").write_text(json.dumps(content))


def _stored(folder):
    return safetensors.load_file(folder / "model.safetensors")


def _store(folder, tensors):
    safetensors.save_file(tensors, folder / "model.safetensors")


# What is read -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", RECIPES)
def test_the_family_of_a_recipe_is_found_without_being_named(kind, tmp_path):
    model = _model(kind)
    model.to_hf(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == kind
    other = Transformer.from_hf(tmp_path)
    assert torch.equal(other(IDS), model(IDS))
    assert other.origin is not None and other.origin.family == kind
    assert not other.training


def test_weights_without_prefix_and_with_masks_are_read_and_the_masks_left_out(folder):
    # So the first GPT-2 stands on the hub.
    tensors = {name.removeprefix("transformer."): t for name, t in _stored(folder).items()}
    for i in (0, 1):
        tensors[f"h.{i}.attn.bias"] = torch.ones(1, 1, 12, 12)
        tensors[f"h.{i}.attn.masked_bias"] = torch.tensor(-1e4)
    _store(folder, tensors)
    model = Transformer.from_hf(folder)
    assert torch.equal(model(IDS), _model()(IDS))
    assert model.origin is not None
    assert sorted(model.origin.left_out) == [
        f"h.{i}.attn.{name}" for i in (0, 1) for name in ("bias", "masked_bias")
    ]


def test_old_names_of_norms_and_the_next_sentence_head_are_read(tmp_path):
    model = _model("bert")
    to_hf(model, tmp_path)
    tensors = {
        re.sub(
            r"LayerNorm\.bias$",
            "LayerNorm.beta",
            re.sub(r"LayerNorm\.weight$", "LayerNorm.gamma", n),
        ): t
        for n, t in _stored(tmp_path).items()
    }
    extra = (
        "bert.pooler.dense.weight",
        "cls.seq_relationship.bias",
        "bert.embeddings.position_ids",
        "bert.embeddings.token_type_ids",
    )
    tensors |= {name: torch.zeros(3) for name in extra}
    tensors["cls.predictions.decoder.weight"] = tensors[
        "bert.embeddings.word_embeddings.weight"
    ].clone()
    _store(tmp_path, tensors)
    _change(tmp_path, architectures=["BertForPreTraining"])
    other = Transformer.from_hf(tmp_path)
    assert torch.equal(other(IDS), model(IDS))
    assert other.origin is not None and sorted(other.origin.left_out) == sorted(extra)


def test_a_tied_table_may_be_stored_as_the_head_alone_or_twice(folder):
    tensors = _stored(folder)
    table = tensors["transformer.wte.weight"]
    _store(folder, {**tensors, "lm_head.weight": table.clone()})
    assert torch.equal(Transformer.from_hf(folder)(IDS), _model()(IDS))
    del tensors["transformer.wte.weight"]
    _store(folder, {**tensors, "lm_head.weight": table})
    assert torch.equal(Transformer.from_hf(folder)(IDS), _model()(IDS))
    _store(folder, {**_stored(folder), "transformer.wte.weight": table + 1})
    found = _refusal(Transformer.from_hf, folder)
    assert "lm_head.weight and transformer.wte.weight are one" in found
    assert "set tie_word_embeddings to false" in found


def test_weights_in_several_parts_are_read(folder):
    tensors = _stored(folder)
    names = list(tensors)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for part, members in parts.items():
        safetensors.save_file({name: tensors[name] for name in members}, folder / part)
    index = {"weight_map": {n: part for part, members in parts.items() for n in members}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").unlink()
    assert torch.equal(Transformer.from_hf(folder)(IDS), _model()(IDS))
    assert "a model in several parts" in _refusal(to_hf, _model(), folder)
    (folder / "b.safetensors").unlink()
    assert "b.safetensors is missing" in _refusal(Transformer.from_hf, folder, kind=LoadingError)
    for content in ("{}", '{"weight_map": {}}', '{"weight_map": 1}'):
        (folder / "model.safetensors.index.json").write_text(content)
        assert "has no weight_map" in _refusal(Transformer.from_hf, folder, kind=LoadingError)


def test_special_tokens_travel_through(folder, tmp_path):
    _change(folder, eos_token_id=7, bos_token_id=[1, 2])
    model = Transformer.from_hf(folder)
    model.to_hf(tmp_path / "out")
    content = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (content["eos_token_id"], content["bos_token_id"]) == (7, [1, 2])
    assert content["pad_token_id"] is None


def test_several_number_types_become_the_widest(folder):
    tensors = {name: t.bfloat16() for name, t in _stored(folder).items()}
    tensors["transformer.ln_f.weight"] = tensors["transformer.ln_f.weight"].float()
    _store(folder, tensors)
    assert {weight.dtype for weight in Transformer.from_hf(folder).parameters()} == {torch.float32}
    told = Transformer.from_hf(folder, dtype=torch.float64)
    assert {weight.dtype for weight in told.parameters()} == {torch.float64}


def test_a_model_read_from_memory_has_memory_of_its_own():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=11, n_positions=6)
    theirs = transformers.GPT2LMHeadModel(config)
    ours = Transformer.from_hf(theirs)
    before = ours(IDS)
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.zero_()
    assert torch.equal(ours(IDS), before)
    assert all(weight.requires_grad and weight.is_contiguous() for weight in ours.parameters())


def test_the_same_folder_may_be_written_again_and_other_files_stay(folder):
    (folder / "tokenizer.json").write_text("{}")
    model = Transformer.from_hf(folder)
    with torch.no_grad():
        model.embedding.tokens.weight.add_(1.0)
    model.to_hf(folder)
    assert torch.equal(Transformer.from_hf(folder)(IDS), model(IDS))
    assert (folder / "tokenizer.json").read_text() == "{}"


def test_rotary_fields_of_before_and_after_transformers_5_mean_the_same():
    new = _recipe("llama", rope_parameters={"rope_type": "default", "rope_theta": 5e5})
    assert new == _recipe("llama", rope_theta=5e5, rope_scaling=None)
    assert new == _recipe("llama", rope_scaling={"type": "default", "rope_theta": 5e5})
    assert str(new.positions) == "rotary(base=500000.0)"
    assert str(_recipe("llama", rope_theta=None).positions) == "rotary"
    assert str(_recipe("gpt_neox").positions) == "rotary(share=0.25)"
    neox = _recipe("gpt_neox", rotary_pct=0.5, rotary_emb_base=20000)
    both = {"rope_theta": 20000, "partial_rotary_factor": 0.5}
    assert neox == _recipe("gpt_neox", rope_parameters=both)
    assert str(neox.positions) == "rotary(base=20000.0, share=0.5)"


def test_gemma_means_tanh_when_it_says_gelu():
    plain = _recipe("gemma")
    assert plain == _recipe("gemma", hidden_act="gelu", hidden_activation=None)
    assert plain == _recipe("gemma", hidden_act="gelu", hidden_activation="gelu_pytorch_tanh")
    assert str(plain.mlp) == "geglu(hidden=24576)"


def test_every_even_share_of_a_head_is_written_as_a_number_that_gives_it_back():
    for size in range(2, 257):
        for turned in range(2, size + 1, 2):
            assert int(size * share_of(turned, size)) == turned
            assert share_of(turned, size) <= 1.0


def test_no_number_of_groups_means_one_for_each_head():
    plain = _recipe("mistral", sliding_window=None)
    assert str(plain.attention) == "multihead(bias=false, groups=8)"
    none = _recipe("mistral", sliding_window=None, num_key_value_heads=None)
    assert str(none.attention) == "multihead(bias=false)"


def test_names_of_other_fields_are_taken_too():
    assert _recipe("gpt2", hidden_size=64, num_hidden_layers=3, num_attention_heads=4) == _recipe(
        "gpt2", n_embd=64, n_layer=3, n_head=4
    )


# Fields that are refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "fields", "sentence"),
    [
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "can only follow"),
        ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights = False"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention = True"),
        ("gpt2", {"activation_function": "mish"}, "parts here know gelu_new"),
        ("gpt2", {"n_layer": 0}, "a whole number from 1 on"),
        ("gpt2", {"n_layer": True}, "a whole number from 1 on"),
        ("gpt2", {"n_inner": "wide"}, "a whole number from 1 on"),
        ("gpt2", {"layer_norm_epsilon": 0}, "a number above 0"),
        ("gpt2", {"layer_norm_epsilon": "small"}, "a number above 0"),
        ("gpt2", {"tie_word_embeddings": "yes"}, "true or false is needed"),
        ("gpt2", {"n_head": 7}, "cannot be divided among 7 heads"),
        ("gpt2", {"quantization_config": {"bits": 4}}, "the weights are quantised"),
        ("gpt2", {"auto_map": {"AutoModel": "x"}}, "brings its own code"),
        ("gpt2", {"pruned_heads": {"0": [1]}}, "heads cut out"),
        ("gpt2", {"is_encoder_decoder": True}, "is_encoder_decoder = True"),
        ("gpt2", {"architectures": ["GPT2ForTokenClassification"]}, "GPT2LMHeadModel or GPT2Model"),
        ("openai-gpt", {"afn": "mish"}, "parts here know gelu, relu, silu, swish"),
        ("bert", {"is_decoder": True}, "is_decoder = True"),
        ("bert", {"add_cross_attention": True}, "add_cross_attention = True"),
        ("bert", {"position_embedding_type": "relative_key"}, "'absolute'"),
        ("bert", {"tie_word_embeddings": False}, "tie_word_embeddings = False"),
        ("bert", {"hidden_act": "relu"}, "the head for masked words here has the exact gelu"),
        ("bert", {"architectures": ["BertForNextSentencePrediction"]}, "has no part here"),
        ("llama", {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "only unscaled"),
        ("llama", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "only unscaled"),
        ("llama", {"rope_parameters": {"rope_type": "yarn"}}, "only unscaled"),
        ("llama", {"rope_parameters": {"full_attention": {}}}, "from layer to layer"),
        ("llama", {"rope_parameters": "default"}, "a mapping is needed"),
        ("llama", {"rope_theta": -1.0}, "a number above 0"),
        ("llama", {"partial_rotary_factor": 0.5}, "the heads of llama are turned whole"),
        ("llama", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "turned whole"),
        ("llama", {"hidden_act": "relu"}, "parts here know silu"),
        ("llama", {"hidden_act": "gelu"}, "parts here know silu"),
        ("mistral", {}, "sliding_window = 4096"),
        ("mistral", {"sliding_window": None, "layer_types": ["sliding_attention"]}, "no sliding"),
        ("qwen2", {"use_sliding_window": True}, "use_sliding_window = True"),
        ("qwen3", {"layer_types": ["sliding_attention"]}, "no sliding window"),
        ("gemma", {"use_bidirectional_attention": True}, "as a causal model"),
        ("gemma", {"hidden_act": "gelu", "hidden_activation": "relu"}, "parts here know silu"),
        ("gptj", {"tie_word_embeddings": True}, "tie_word_embeddings = True"),
        ("gptj", {"rotary_dim": None}, "rotary_dim = None"),
        ("gpt_neox", {"hidden_act": "relu6"}, "parts here know"),
    ],
)
def test_a_field_that_no_part_can_follow_is_refused_by_name(kind, fields, sentence):
    found = _refusal(_recipe, kind, **fields)
    assert sentence in found
    assert kind in found or "cannot be divided" in found


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("gpt2", {"reorder_and_upcast_attn": True, "attn_pdrop": 0.3, "use_cache": False}),
        ("bert", {"hidden_dropout_prob": 0.5, "pad_token_id": 3}),
        ("llama", {"pretraining_tp": 2, "initializer_range": 0.5, "sliding_window": 5}),
        ("llama", {"quantization_config": {"quant_method": "gguf", "gguf_file": "x.gguf"}}),
        ("gptj", {"tie_word_embeddings": True, "architectures": ["GPTJModel"]}),
    ],
)
def test_fields_that_change_nothing_in_evaluation_are_left_alone(kind, fields):
    bare = {"architectures": fields["architectures"]} if "architectures" in fields else {}
    assert _recipe(kind, **fields) == _recipe(kind, **bare)


# Folders and weights that are refused ---------------------------------------------------------------


def test_folders_without_a_checkpoint_are_refused(tmp_path):
    assert "There is no folder" in _refusal(
        Transformer.from_hf, tmp_path / "none", kind=LoadingError
    )
    assert "has no config.json" in _refusal(Transformer.from_hf, tmp_path, kind=LoadingError)
    (tmp_path / "recipe.json").write_text("{}")
    assert "use load" in _refusal(Transformer.from_hf, tmp_path, kind=LoadingError)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    assert "has no weights" in _refusal(Transformer.from_hf, tmp_path, kind=LoadingError)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    found = _refusal(Transformer.from_hf, tmp_path, kind=LoadingError)
    assert "are a pickle (pytorch_model.bin)" in found and "save_pretrained" in found
    (tmp_path / "config.json").write_text("{}")
    assert "names no model_type" in _refusal(Transformer.from_hf, tmp_path, kind=LoadingError)
    (tmp_path / "config.json").write_text("{")
    assert "not readable as JSON" in _refusal(Transformer.from_hf, tmp_path, kind=LoadingError)


def test_another_family_is_refused_before_weights_are_read(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "gpt_neo"}')
    found = _refusal(Transformer.from_hf, tmp_path)
    assert "of the family 'gpt_neo', which cannot be built here" in found
    assert "nearest known family is 'gpt_neox'" in found and "llama" in found
    (tmp_path / "config.json").write_text('{"model_type": "zzz"}')
    assert "nearest known family" not in _refusal(Transformer.from_hf, tmp_path)


def test_a_module_without_configuration_is_refused():
    found = _refusal(Transformer.from_hf, torch.nn.Linear(2, 2), kind=LoadingError)
    assert "A Linear is not a model of transformers" in found
    odd = torch.nn.Linear(2, 2)
    for config in (SimpleNamespace(model_type="gpt2"), SimpleNamespace(to_dict=dict)):
        odd.config = config
        assert "no configuration with a model_type" in _refusal(
            Transformer.from_hf, odd, kind=LoadingError
        )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda t: t.pop("transformer.ln_f.bias"), "transformer.ln_f.bias is missing"),
        (lambda t: [t.pop(n) for n in list(t) if ".h.1." in n], "and 9 more are missing"),
        (lambda t: t.update(extra=torch.ones(2)), "transformer.extra is not expected"),
        (
            lambda t: t.update({"transformer.h.0.mlp.c_fc.weight": torch.ones(64, 16)}),
            "transformer.h.0.mlp.c_fc.weight is stored as [64, 16], and [16, 64] is needed",
        ),
        (
            lambda t: t.update({"transformer.ln_f.bias": torch.ones(16, dtype=torch.int8)}),
            "transformer.ln_f.bias of",
        ),
        (lambda t: t.update({"ln_f.bias": torch.ones(16)}), "stores transformer.ln_f.bias twice"),
    ],
)
def test_weights_that_do_not_fit_are_refused_whole(change, sentence, folder):
    tensors = _stored(folder)
    change(tensors)
    _store(folder, tensors)
    assert sentence in _refusal(Transformer.from_hf, folder)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"n_embd": 32}, "is stored as [23, 16], and [23, 32] is needed"),
        ({"n_layer": 3}, "transformer.h.2.ln_1.weight"),
        ({"n_layer": 1}, "are not expected"),
        ({"tie_word_embeddings": False}, "lm_head.weight is missing"),
    ],
)
def test_a_configuration_of_another_model_is_refused(fields, sentence, folder):
    _change(folder, **fields)
    found = _refusal(Transformer.from_hf, folder)
    assert sentence in found and "Nothing was loaded" in found


def test_a_damaged_file_is_refused(folder):
    (folder / "model.safetensors").write_bytes(b"not safetensors")
    assert "cut short or damaged" in _refusal(Transformer.from_hf, folder, kind=LoadingError)


# Recipes that no family can be ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "fields", "sentence"),
    [
        ("gpt2", {"connection": "rezero"}, "its connection would be identity"),
        ("gpt2", {"connection": "deepnorm", "placement": "post"}, "and the recipe has deepnorm"),
        ("gpt2", {"placement": "post"}, "its placement would be pre, and the recipe has post"),
        ("gpt2", {"norm": "rmsnorm"}, "its norm would be layernorm, and the recipe has rmsnorm"),
        ("gpt2", {"norm": "layernorm(bias=false)"}, "layernorm(bias=True)"),
        ("gpt2", {"positions": "rotary"}, "its positions would be learned"),
        ("gpt2", {"attention": "multihead(groups=1)"}, "multihead(groups=2)"),
        ("gpt2", {"attention": "multihead(causal=false)"}, "multihead(causal=True)"),
        ("gpt2", {"attention": "multihead(bias=false)"}, "bias=True, output_bias=True"),
        ("gpt2", {"attention": "none"}, "its attention would be multihead"),
        ("gpt2", {"mlp": "none"}, "its mlp would be gelu_tanh, and the recipe has none"),
        ("gpt2", {"mlp": "swiglu"}, "and the recipe has swiglu"),
        ("gpt2", {"embedding": "token(scale=2.0)"}, "token(scale=2.0)"),
        ("gpt2", {"head": "masked"}, "its head would be tied, and the recipe has masked"),
        ("gpt2", {"embedding": "none", "head": "none"}, "would be"),
        ("openai-gpt", {"mlp": "gelu_tanh(hidden=20)"}, "gelu_tanh(hidden=64)"),
        ("openai-gpt", {"mlp": "gelu"}, "its mlp would be gelu_tanh"),
        ("bert", {"head": "linear"}, "its head would be masked"),
        ("bert", {"embedding": "token(normed=true)"}, "token(types=1)"),
        ("bert", {"embedding": "token(types=2)"}, "token(normed=True)"),
        ("llama", {"positions": "rotary(share=0.5)"}, "rotary(share=1.0)"),
        ("llama", {"positions": "rotary(pairs=neighbours)"}, "rotary(pairs=half)"),
        ("llama", {"norm": "rmsnorm(offset=1.0)"}, "rmsnorm(offset=0.0)"),
        ("llama", {"attention": "multihead(bias=false, scale=1.0)"}, "scale=1.0"),
        ("gptj", {"head": "linear"}, "linear(bias=True)"),
        ("gptj", {"positions": "rotary(base=5.0, share=0.5, pairs=neighbours)"}, "base=10000.0"),
        ("gpt_neox", {"placement": "parallel"}, "parallel(norms=2)"),
        ("gpt_neox", {"placement": "post"}, "and the recipe has post"),
    ],
)
def test_a_family_that_cannot_be_the_model_names_the_part(kind, fields, sentence, tmp_path):
    found = _refusal(to_hf, _model(kind, **fields), tmp_path / "out", family=kind)
    assert f"A {kind} checkpoint cannot be this model" in found
    assert sentence in found and "save()" in found
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("llama", {"attention": f"multihead(bias=false, groups=1, scale={8**-0.5!r})"}),
        ("llama", {"attention": "multihead(bias=false, groups=1, head_width=8)"}),
        ("llama", {"mlp": "swiglu(hidden=48)"}),
        ("gpt2", {"attention": "multihead(groups=2, output_bias=true)"}),
        ("gpt2", {"mlp": "gelu_tanh(hidden=64)"}),
        ("gpt2", {"init": "xavier"}),
    ],
)
def test_a_default_that_is_spelled_out_changes_nothing(kind, fields, tmp_path):
    model = _model(kind, **fields)
    to_hf(model, tmp_path, family=kind)
    assert torch.equal(Transformer.from_hf(tmp_path)(IDS), model(IDS))


def test_where_no_family_can_be_the_model_the_nearest_is_named(tmp_path):
    found = _refusal(to_hf, _model(connection="rezero"), tmp_path)
    assert "gpt2 comes nearest, but its connection would be identity" in found
    found = _refusal(to_hf, _model("llama", connection="layerscale"), tmp_path)
    assert "llama comes nearest, but its connection" in found


def test_an_unknown_family_is_an_unknown_name(tmp_path):
    found = _refusal(to_hf, _model(), tmp_path, family="gpt3", kind=UnknownName)
    assert "No checkpoint family is called 'gpt3'" in found


def test_the_family_that_the_weights_came_from_comes_first(tmp_path):
    to_hf(_model("llama"), tmp_path / "a", family="mistral")
    model = Transformer.from_hf(tmp_path / "a")
    model.to_hf(tmp_path / "b")
    assert json.loads((tmp_path / "b" / "config.json").read_text())["model_type"] == "mistral"
    model.to_hf(tmp_path / "c", family="llama")
    assert torch.equal(Transformer.from_hf(tmp_path / "c")(IDS), model(IDS))


def test_folders_with_other_models_are_not_overwritten(folder, tmp_path):
    assert "holds another model" in _refusal(to_hf, _model(depth=3), folder)
    assert "holds another model" in _refusal(to_hf, _model("llama"), folder)
    _change(folder, scale_attn_weights=False)
    assert "holds another model" in _refusal(to_hf, _model(), folder)
    (folder / "config.json").unlink()
    assert "weights without a configuration" in _refusal(to_hf, _model(), folder)
    (folder / "file").write_text("")
    assert "is a file" in _refusal(to_hf, _model(), folder / "file")
    _model().save(tmp_path / "own")
    assert "Leadline's own format" in _refusal(to_hf, _model(), tmp_path / "own")
