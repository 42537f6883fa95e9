"""A folder that Transformer.save wrote is a model like any other."""

from __future__ import annotations

import pytest
import torch

import leadline
from leadline.errors import LoadingError, RecipeError
from leadline.models.loading import load, load_model
from leadline.parts import Transformer

pytest.importorskip("safetensors")


@pytest.fixture
def folder(tmp_path):
    """A tiny model with a connection that no other library has."""
    model = Transformer(
        depth=2, width=16, heads=2, vocabulary=23, context=12, connection="rezero", seed=5
    )
    model.save(tmp_path / "mine")
    return tmp_path / "mine"


def test_the_folder_gives_the_saved_model(folder):
    loaded = load_model(folder)
    assert isinstance(loaded.model, Transformer)
    assert (loaded.name, loaded.source, loaded.missing) == ("mine", "local folder", ())
    assert loaded.tokenizer is None
    assert not loaded.model.training
    ids = torch.arange(6).unsqueeze(0)
    assert torch.equal(loaded.model(ids), Transformer.load(folder)(ids))
    assert str(loaded.model.recipe.connection) == "rezero"
    assert isinstance(load(folder), type(loaded))


def test_the_number_type_can_be_told(folder):
    assert next(load_model(folder).model.parameters()).dtype == torch.float32
    told = load_model(folder, dtype="bfloat16")
    assert next(told.model.parameters()).dtype == torch.bfloat16


def test_it_can_be_measured(folder):
    record = leadline.measure(load_model(folder), probes="stream")
    assert record.depth("decoder") == 2
    assert record.provenance["anatomy"]["source"] == "declaration of the model"


def test_what_is_wrong_is_said(folder):
    with pytest.raises(LoadingError, match="cannot be changed while it is loaded, and depth was"):
        load_model(folder, overrides={"depth": 3})
    (folder / "recipe.json").write_text("{}")
    with pytest.raises(LoadingError, match="was not written by save"):
        load_model(folder)


def test_weights_of_another_recipe_are_refused(folder, tmp_path):
    Transformer(depth=1, width=16, heads=2, vocabulary=23, context=12).save(tmp_path / "other")
    (tmp_path / "other" / "model.safetensors").rename(folder / "model.safetensors")
    with pytest.raises(RecipeError, match="do not fit its recipe"):
        load_model(folder)


def test_a_tokenizer_beside_it_is_read(folder):
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"deep": 0, "[UNK]": 1}, "[UNK]"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").save_pretrained(
        folder
    )
    tokenizer = load_model(folder).tokenizer
    assert tokenizer("deep sea")["input_ids"] == [0, 1]
