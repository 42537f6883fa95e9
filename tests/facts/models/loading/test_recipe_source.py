"""Models that a recipe describes: by name, by file, by the defaults, with changed fields."""

import json

import pytest
import torch

import leadline
from leadline.errors import LeadlineError, LoadingError, RecipeError, UnknownName
from leadline.models.loading import load_model
from leadline.models.loading.request import Request, not_found
from leadline.parts import Recipe, Transformer

SMALL = {"depth": 2, "width": 32, "vocabulary": 50, "context": 16}


def test_a_recipe_by_name_is_built_with_the_changed_fields():
    changes = SMALL | {"heads": 2, "connection": "hyper(lanes=2)"}
    loaded = load_model("gpt2", recipe=True, overrides=changes)
    assert isinstance(loaded.model, Transformer)
    assert not loaded.model.training
    recipe = loaded.model.recipe
    assert (recipe.depth, recipe.width, recipe.vocabulary) == (2, 32, 50)
    assert str(recipe.head) == "tied"
    assert loaded.source == "recipe gpt2"
    assert loaded.name == (
        "gpt2(depth=2, width=32, vocabulary=50, context=16, heads=2, connection=hyper(lanes=2))"
    )
    assert loaded.tokenizer is None


def test_a_field_that_is_set_to_what_it_was_is_no_change():
    assert load_model("default", recipe=True, overrides={"depth": 12}).name == "default"


def test_default_is_the_recipe_in_which_nothing_is_set():
    loaded = load_model("default", recipe=True, overrides={"depth": 1, "width": 16})
    assert loaded.model.recipe == Recipe(depth=1, width=16)


@pytest.mark.parametrize("saved", [False, True])
def test_a_recipe_may_stand_in_a_file(tmp_path, saved):
    file = tmp_path / "recipe.json"
    if saved:
        from leadline.parts.checkpoints import save

        save(Transformer(placement="post", **SMALL), tmp_path)
        file = tmp_path
    else:
        file.write_text(json.dumps(SMALL | {"placement": "post"}))
    loaded = load_model(file, recipe=True, overrides={"depth": 3})
    assert loaded.model.recipe == Recipe(placement="post", **SMALL | {"depth": 3})
    assert loaded.name == f"{tmp_path / 'recipe.json'}(depth=3)"


def test_the_seed_and_the_number_type_are_heeded():
    one, same, other = (
        load_model("default", recipe=True, overrides=SMALL, dtype="float64", seed=seed).model
        for seed in (1, 1, 2)
    )
    weights = [dict(model.named_parameters()) for model in (one, same, other)]
    name = "blocks.0.attention.branch.qkv.weight"
    assert weights[0][name].dtype == torch.float64
    assert torch.equal(weights[0][name], weights[1][name])
    assert not torch.equal(weights[0][name], weights[2][name])


def test_a_record_names_the_recipe_and_its_changes():
    loaded = load_model("gpt2", recipe=True, overrides=SMALL | {"heads": 2})
    facts = leadline.measure(loaded, probes="stream").provenance["model"]
    assert facts["source"] == "recipe gpt2"
    assert facts["name"] == "gpt2(depth=2, width=32, vocabulary=50, context=16, heads=2)"
    assert facts["class"] == "Transformer"


def test_a_model_that_takes_the_stream_itself_is_given_random_features():
    loaded = load_model("default", recipe=True, overrides=SMALL | {"embedding": "none"})
    record = leadline.measure(loaded, probes="stream")
    assert record.provenance["input"]["kind"] == "random features"


def test_random_tokens_come_from_the_vocabulary_and_not_from_the_positions():
    model = Transformer(depth=1, width=16, vocabulary=500, context=8)
    tokens = leadline.random_tokens(model, examples=4, length=8)
    assert int(tokens.main.max()) > 8


@pytest.mark.parametrize(
    ("source", "changes", "error", "sentence"),
    [
        ("gpt3", {}, UnknownName, "No recipe is called 'gpt3'. Did you mean 'gpt2'"),
        ("defualt", {}, UnknownName, "Did you mean 'default'?"),
        ("nowhere.json", {}, LoadingError, "There is no file nowhere.json"),
        ("default", {"dept": 3}, RecipeError, "no field 'dept'. Did you mean 'depth'?"),
        ("default", {"depth": 4.5}, RecipeError, "a whole number from 1 on, not 4.5"),
        ("default", {"connection": "hyperr"}, UnknownName, "Did you mean 'hyper'?"),
        ("default", {"connection": "hyper(lane=4)"}, LeadlineError, "has no option 'lane'"),
        ("default", {"connection": "deepnorm"}, RecipeError, "makes no sense with the placement"),
        ("default", {"width": 2_000_000}, LoadingError, "billion parameters"),
    ],
)
def test_what_cannot_be_built_is_refused_with_a_sentence(source, changes, error, sentence):
    with pytest.raises(error) as refused:
        load_model(source, recipe=True, overrides=changes)
    assert sentence in str(refused.value)


def test_a_model_that_memory_cannot_hold_is_counted_and_refused_before_it_is_built(monkeypatch):
    count = sum(p.numel() for p in Transformer(**SMALL).parameters())
    monkeypatch.setattr(
        "leadline.models.loading.request.os.sysconf",
        lambda name: {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": 4 * count - 1}[name],
    )
    with pytest.raises(LoadingError, match=r"this configuration has 0\.0 billion parameters"):
        load_model("default", recipe=True, overrides=SMALL)
    monkeypatch.setattr(
        "leadline.models.loading.request.os.sysconf",
        lambda name: {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": 4 * count}[name],
    )
    assert load_model("default", recipe=True, overrides=SMALL).name.startswith("default(depth=2")


@pytest.mark.parametrize("content", ["[1, 2]", '"gpt2"', '{"recipe": 3}'])
def test_a_file_without_a_recipe_is_refused(tmp_path, content):
    file = tmp_path / "recipe.json"
    file.write_text(content)
    with pytest.raises(LoadingError, match="holds no recipe; write its fields as JSON"):
        load_model(file, recipe=True)
    file.write_text("{")
    with pytest.raises(LoadingError, match="is not readable as JSON"):
        load_model(file, recipe=True)


def test_a_type_and_a_recipe_are_not_both_taken():
    with pytest.raises(LoadingError, match="choose one of the two"):
        load_model("gpt2", recipe=True, random_init=True)


def test_a_name_that_the_hub_does_not_give_is_answered_with_the_recipe_of_that_name():
    def hint(name):
        request = Request(name, {}, None, trust_remote_code=False)
        return str(not_found(request, OSError("nothing there")))

    assert "For random weights of this type: --random-init gpt2." in hint("gpt2")
    assert "For the recipe of this name: --recipe gpt2." in hint("gpt2")
    assert hint("gpt2-xl").endswith(
        "(nothing there). For the recipe of this name: --recipe gpt2-xl."
    )
    assert "Check the name" in hint("gpt-17")
