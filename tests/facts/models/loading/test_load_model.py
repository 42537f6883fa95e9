"""Models come from folders, functions and model types; what is wrong is said in a sentence."""

from __future__ import annotations

import json
import os
import pickle
from types import SimpleNamespace

import pytest
import torch

from leadline.errors import LoadingError, MissingExtra
from leadline.models.loading import LoadedModel, load, load_model
from leadline.models.loading.configuration import class_of
from leadline.testing.zoo import ZOO

transformers = pytest.importorskip("transformers")


@pytest.fixture
def folder(tmp_path):
    """A folder with a tiny GPT-2, as save_pretrained writes it."""
    place = tmp_path / "tiny"
    ZOO["gpt2"].build(0).save_pretrained(place)
    return place


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def _refusal(source, **options):
    with pytest.raises(LoadingError) as caught:
        load_model(source, **options)
    return str(caught.value)


# What works -------------------------------------------------------------------------------------


def test_folder_gives_the_stored_weights_in_evaluation_mode(folder):
    loaded = load_model(folder)
    stored = ZOO["gpt2"].build(0)
    assert type(loaded.model).__name__ == "GPT2LMHeadModel"
    assert (loaded.name, loaded.source, loaded.missing) == ("tiny", "local folder", ())
    assert not loaded.model.training
    assert loaded.tokenizer is None
    pairs = zip(loaded.model.parameters(), stored.parameters(), strict=True)
    assert all(torch.equal(left, right) for left, right in pairs)


def test_folder_in_several_parts_gives_the_stored_weights(tmp_path):
    stored = ZOO["gpt2"].build(0)
    stored.save_pretrained(tmp_path, max_shard_size="200KB")
    assert (tmp_path / "model.safetensors.index.json").is_file()
    pairs = zip(load_model(tmp_path).model.parameters(), stored.parameters(), strict=True)
    assert all(torch.equal(left, right) for left, right in pairs)


def test_weights_keep_their_number_type_unless_told_otherwise(tmp_path):
    ZOO["llama"].build(0).to(torch.bfloat16).save_pretrained(tmp_path)
    assert load_model(tmp_path).model.dtype == torch.bfloat16
    assert load_model(tmp_path, dtype="float32").model.dtype == torch.float32


def test_random_init_draws_the_same_weights_from_the_same_seed():
    def drawn(seed):
        sizes = {"n_layer": 2, "n_embd": 16, "n_head": 2, "vocab_size": 31}
        model = load_model("gpt2", random_init=True, overrides=sizes, seed=seed).model
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


def test_random_init_builds_rotary_frequencies_in_float32_whatever_the_number_type():
    sizes = {
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "intermediate_size": 32,
        "vocab_size": 31,
    }
    loaded = load_model("llama", random_init=True, overrides=sizes, dtype="bfloat16")
    assert loaded.model.lm_head.weight.dtype == torch.bfloat16
    expected = 10000.0 ** -(torch.arange(0, 64, 2, dtype=torch.float64) / 64)
    torch.testing.assert_close(loaded.model.model.rotary_emb.inv_freq.double(), expected)
    assert torch.get_default_dtype() == torch.float32


def test_random_init_takes_the_configuration_of_a_folder(folder):
    loaded = load_model(folder, random_init=True, overrides={"n_layer": 1}, seed=9)
    assert len(loaded.model.transformer.h) == 1
    stored = ZOO["gpt2"].build(0)
    assert loaded.model.transformer.wte.weight.shape == stored.transformer.wte.weight.shape
    assert not torch.equal(loaded.model.transformer.wte.weight, stored.transformer.wte.weight)


@pytest.mark.parametrize(
    ("model_type", "expected"),
    [
        ("gpt2", "GPT2LMHeadModel"),
        ("bert", "BertForMaskedLM"),
        ("t5", "T5ForConditionalGeneration"),
        ("vit", "ViTForImageClassification"),
        ("deit", "DeiTForImageClassification"),
        ("hubert", "HubertModel"),
    ],
)
def test_random_init_chooses_the_class_by_what_the_type_is_for(model_type, expected):
    layers = {"gpt2": "n_layer", "t5": "num_layers"}.get(model_type, "num_hidden_layers")
    loaded = load_model(model_type, random_init=True, overrides={layers: 1})
    assert type(loaded.model).__name__ == expected


def test_override_reads_numbers_from_text_and_reaches_into_nested_configurations():
    overrides = {"text_config.num_hidden_layers": "1", "vision_config.num_hidden_layers": "2"}
    model = load_model("clip", random_init=True, overrides=overrides).model
    assert len(model.text_model.encoder.layers) == 1
    assert len(model.vision_model.encoder.layers) == 2


def test_function_of_a_file_gives_a_module(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("from torch import nn\ndef build():\n    return nn.Linear(2, 3)\n")
    loaded = load_model(f"{file}:build")
    assert isinstance(loaded.model, torch.nn.Linear)
    assert loaded.source == "function"


def test_function_of_a_package_in_the_current_folder_gives_a_module(tmp_path, monkeypatch):
    package = tmp_path / "their_package_of_models"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "small.py").write_text(
        "from torch import nn\ndef build():\n    return nn.Linear(2, 3), 'tokenizer'\n"
    )
    monkeypatch.chdir(tmp_path)
    loaded = load_model("their_package_of_models.small:build", dtype="float64")
    assert loaded.model.weight.dtype == torch.float64
    assert loaded.tokenizer == "tokenizer"


def test_loading_leaves_random_state_verbosity_and_environment_as_they_were(folder):
    from transformers.utils import logging

    before = (
        torch.random.get_rng_state(),
        logging.get_verbosity(),
        logging.is_progress_bar_enabled(),
        os.environ.get("DISABLE_SAFETENSORS_CONVERSION"),
    )
    load_model(folder)
    load_model("gpt2", random_init=True, overrides={"n_layer": 1})
    _refusal("gpt9", random_init=True)
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert logging.get_verbosity() == before[1]
    assert logging.is_progress_bar_enabled() == before[2]
    assert os.environ.get("DISABLE_SAFETENSORS_CONVERSION") == before[3]


def test_load_tells_a_record_from_a_model(tmp_path, folder):
    record = pytest.importorskip("leadline.record")
    path = tmp_path / "run.leadline"
    record.Record().save(path)
    assert isinstance(load(path), record.Record)
    assert isinstance(load(folder), LoadedModel)


# What is refused --------------------------------------------------------------------------------


class _Bomb:
    """A pickle that leaves a file behind when it is opened."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "last.ckpt"])
def test_pickle_is_refused_and_never_opened(folder, tmp_path, name):
    (folder / "model.safetensors").unlink()
    mark = tmp_path / "opened"
    (folder / name).write_bytes(pickle.dumps(_Bomb(mark)))
    assert "pickle" in _refusal(folder)
    assert "save_pretrained" in _refusal(folder)
    assert "pickle" in _refusal(folder / name)
    assert not mark.exists()


def test_pickle_named_in_the_configuration_is_refused(folder):
    config = json.loads((folder / "config.json").read_text())
    config["transformers_weights"] = "adapter_model.bin"
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "adapter_model.bin").write_bytes(b"")
    assert "adapter_model.bin" in _refusal(folder)


@pytest.mark.parametrize("kept", [4, 1000, -1])
def test_truncated_safetensors_is_refused_by_name(folder, kept):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    sentence = _refusal(folder)
    assert "model.safetensors is cut short or damaged" in sentence
    assert "fetch it again" in sentence


def test_missing_part_is_named(tmp_path):
    ZOO["gpt2"].build(0).save_pretrained(tmp_path, max_shard_size="200KB")
    part = sorted(tmp_path.glob("model-*.safetensors"))[1]
    part.unlink()
    assert part.name in _refusal(tmp_path)


def test_folder_without_weights_or_configuration_is_refused(folder):
    (folder / "model.safetensors").unlink()
    assert "no weights" in _refusal(folder)
    (folder / "config.json").unlink()
    assert "no config.json" in _refusal(folder)


def test_broken_configuration_is_refused(folder):
    (folder / "config.json").write_text('{"model_type": "gpt2", ')
    assert "config.json is not readable as JSON" in _refusal(folder)


def test_folder_of_an_unknown_type_is_refused_with_the_nearest_names(folder):
    (folder / "config.json").write_text('{"model_type": "gtp2"}')
    assert "'gtp2'" in _refusal(folder)
    assert "'gpt2'" in _refusal(folder)
    (folder / "config.json").write_text("{}")
    assert "no model_type" in _refusal(folder)


def test_unknown_model_type_is_answered_with_the_nearest_names():
    sentence = _refusal("berd", random_init=True)
    assert "No model type is called 'berd'" in sentence
    assert "'bert'" in sentence


def test_unknown_configuration_field_is_answered_with_the_nearest_names():
    sentence = _refusal("gpt2", random_init=True, overrides={"n_layers": 3})
    assert "GPT2Config has no field 'n_layers'. Did you mean 'n_layer'" in sentence
    assert "n_embd" in sentence


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"n_layer": "many"}, "'n_layer' expected int"),
        ({"n_embd": 65, "n_layer": 1}, "65"),
        ({"n_layer.x": 1}, "not a nested configuration"),
    ],
)
def test_impossible_configuration_value_is_refused(overrides, expected):
    assert expected in _refusal("gpt2", random_init=True, overrides=overrides)


def test_model_larger_than_the_memory_is_refused_before_memory_is_asked_for():
    sentence = _refusal("gpt2", random_init=True, overrides={"n_embd": 1200000, "n_layer": 2})
    assert "billion parameters" in sentence


def test_weights_of_another_size_are_refused(folder):
    sentence = _refusal(folder, overrides={"n_embd": 32})
    assert "is stored as" in sentence


def test_weights_of_another_architecture_are_refused(folder):
    ZOO["llama"].build(0).config.save_pretrained(folder)
    assert "another architecture" in _refusal(folder)


def test_adapter_is_refused(folder):
    (folder / "adapter_config.json").write_text("{}")
    assert "merge_and_unload" in _refusal(folder)


def test_code_of_a_model_is_not_run_unless_allowed(tmp_path, monkeypatch):
    mark = tmp_path / "ran"
    folder = tmp_path / "theirs"
    folder.mkdir()
    monkeypatch.setattr(
        "transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules")
    )
    (folder / "theirs_code.py").write_text(
        "import pathlib, torch\n"
        "from transformers import PreTrainedConfig, PreTrainedModel\n"
        f"pathlib.Path({str(mark)!r}).touch()\n"
        "class TheirConfig(PreTrainedConfig):\n"
        "    model_type = 'theirs'\n"
        "class TheirModel(PreTrainedModel):\n"
        "    config_class = TheirConfig\n"
        "    def __init__(self, config):\n"
        "        super().__init__(config)\n"
        "        self.linear = torch.nn.Linear(2, 2)\n"
        "        self.post_init()\n"
    )
    (folder / "config.json").write_text(
        json.dumps(
            {
                "model_type": "theirs",
                "auto_map": {
                    "AutoConfig": "theirs_code.TheirConfig",
                    "AutoModel": "theirs_code.TheirModel",
                },
            }
        )
    )
    from safetensors.torch import save_file

    weights = {"linear.weight": torch.eye(2), "linear.bias": torch.ones(2)}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    _refusal(folder)
    assert not mark.exists()
    loaded = load_model(folder, trust_remote_code=True)
    assert mark.exists()
    assert type(loaded.model).__name__ == "TheirModel"
    assert torch.equal(loaded.model.linear.weight, torch.eye(2))


@pytest.mark.usefixtures("offline")
def test_hub_model_that_cannot_be_had_is_refused_with_advice():
    assert "--random-init gpt2" in _refusal("gpt2")
    assert "fetch the model first" in _refusal("nobody/nothing-of-this-name")


def test_path_that_does_not_exist_is_refused(tmp_path):
    assert "no folder and no file" in _refusal(tmp_path / "nothing")


def test_files_that_are_no_models_are_refused(tmp_path, folder):
    text = tmp_path / "notes.txt"
    text.write_text("hello")
    assert "not a model" in _refusal(text)
    assert "give its folder" in _refusal(folder / "model.safetensors")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("def build():\n    return 3\n", "returned a int"),
        ("def build():\n    raise RuntimeError('no luck')\n", "RuntimeError: no luck"),
        ("def other():\n    return 3\n", "has no function 'build'"),
        ("import nothing_of_this_name\n", "nothing_of_this_name"),
    ],
)
def test_function_that_gives_no_module_is_refused(tmp_path, body, expected):
    file = tmp_path / "mine.py"
    file.write_text(body)
    assert expected in _refusal(f"{file}:build")


def test_function_in_nothing_is_refused(tmp_path):
    assert "cannot be imported" in _refusal("nothing_of_this_name:build")
    assert "There is no file" in _refusal(f"{tmp_path}/nothing.py:build")


def test_unknown_number_type_and_device_are_refused():
    assert "No number type is called 'int4'" in _refusal("gpt2", random_init=True, dtype="int4")
    small = {"n_layer": 1, "n_embd": 8, "n_head": 1, "vocab_size": 9}
    assert "'abacus'" in _refusal("gpt2", random_init=True, overrides=small, device="abacus")


def test_gguf_file_that_is_none_is_refused(tmp_path):
    file = tmp_path / "model.gguf"
    assert "There is no file" in _refusal(file)
    file.write_bytes(b"PK\x03\x04 something else")
    assert "not a GGUF file" in _refusal(file)


def test_truncated_gguf_file_is_refused(tmp_path):
    pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF\x03\x00\x00\x00")
    assert "cannot be read" in _refusal(file)


def test_gguf_without_its_libraries_names_the_extra(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "gguf", None)
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF\x03\x00\x00\x00")
    with pytest.raises(MissingExtra, match=r"leadline\[gguf\]"):
        load_model(file)


# Which class ------------------------------------------------------------------------------------


def test_class_that_takes_another_configuration_gives_way_to_one_that_takes_this():
    # The mapping of causal models names Emu3's decoder, whose configuration is nested in this one.
    config = transformers.CONFIG_MAPPING["emu3"]()
    assert class_of(config).__name__ == "Emu3Model"
    # A type that borrows another's class has no other.
    assert class_of(transformers.CONFIG_MAPPING["glmga"]()).__name__.startswith("Glm46V")


@pytest.mark.parametrize("kind", ["Musicgen", "MusicgenMelody"])
def test_a_pair_that_writes_sound_gets_the_class_of_the_whole_model(kind):
    # Their causal language model is the decoder, which takes the decoder's configuration.
    config = getattr(transformers, f"{kind}Config")()
    assert class_of(config).__name__ == f"{kind}ForConditionalGeneration"


def test_sizes_that_do_not_fit_together_are_refused_with_the_option_that_changes_them():
    said = _refusal("gpt2", random_init=True, overrides={"n_embd": 10, "n_head": 3})
    assert said.startswith("GPT2LMHeadModel cannot be built with this configuration: ")
    assert said.endswith(
        ". Set fields that fit together (overrides={...}, --set KEY=VALUE), or give a function "
        "that builds the model, as package.module:function."
    )


@pytest.mark.parametrize("kind", [ImportError, ValueError])
def test_model_class_that_cannot_be_imported_is_refused_with_the_reason(monkeypatch, kind):
    class Broken(dict):
        def __getitem__(self, key):
            raise kind("\nGPT2 needs the library hearing.\n")

    config = transformers.CONFIG_MAPPING["gpt2"]()
    library = SimpleNamespace(MODEL_FOR_MASKED_LM_MAPPING=Broken({type(config): None}))
    monkeypatch.setattr("leadline.models.loading.configuration.require", lambda *_, **__: library)
    with pytest.raises(LoadingError) as caught:
        class_of(config)
    assert str(caught.value) == (
        "The model class for GPT2Config cannot be imported: GPT2 needs the library hearing."
    )


@pytest.mark.parametrize("where", ["above", "inside"])
def test_a_function_that_uses_transformers_is_silenced_too(tmp_path, where):
    line = "from transformers.utils import logging"
    file = tmp_path / f"{where}.py"
    file.write_text(
        f"""
from torch import nn
{line if where == "above" else ""}
def build():
    {line if where == "inside" else ""}
    model = nn.Linear(2, 2)
    model.heard = logging.get_verbosity(), logging.is_progress_bar_enabled()
    return model
"""
    )
    from transformers.utils import logging

    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    assert load_model(f"{file}:build").model.heard == (40, False)
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before
