"""The option --recipe of the commands that run a model."""

import json

import pytest

from leadline.parts.recipes import RECIPES

TINY = ["--set=depth=2", "--set=width=16", "--set=heads=2", "--random", "2x6"]


def test_measure_builds_the_model_of_a_recipe_and_names_it(leadline):
    said = leadline(
        "measure", "--recipe", "default", "--set", "connection=hyper(lanes=4)", *TINY, "--json"
    )
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["model"]["source"] == "recipe default"
    assert found["model"]["name"] == (
        "default(connection=hyper(lanes=4), depth=2, width=16, heads=2)"
    )
    assert "lane.norm" in found["quantities"]


def test_anatomy_proves_the_model_of_a_recipe(leadline):
    said = leadline("anatomy", "--recipe", "gpt2", "--set=vocabulary=50", *TINY)
    assert said.code == 0, said.err
    assert "attention: x <- x + attention.branch" in said.out


def test_a_recipe_may_stand_in_a_file(leadline, tmp_path):
    file = tmp_path / "mine.json"
    file.write_text('{"placement": "post", "vocabulary": 40}')
    found = json.loads(leadline("measure", "--recipe", file, *TINY, "--json").out)
    assert found["model"]["name"] == f"{file}(depth=2, width=16, heads=2)"


def test_a_plugin_may_bring_the_recipe(leadline, tmp_path):
    file = tmp_path / "house_recipe.py"
    file.write_text(
        "from leadline.parts import Recipe\n"
        "from leadline.parts.recipes import RECIPES\n"
        "@RECIPES.register('recipe-of-a-test')\n"
        "def mine():\n"
        "    '''Two layers.'''\n"
        "    return Recipe(depth=2, width=16, heads=2, placement='post')\n"
    )
    asked = ["measure", "--recipe", "recipe-of-a-test", "--random", "2x6", "--plugin", file]
    try:
        found = json.loads(leadline(*asked, "--json").out)
    finally:
        RECIPES._entries.pop("recipe-of-a-test")
    assert found["model"]["name"] == "recipe-of-a-test"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--recipe", "gpt3"], "No recipe is called 'gpt3'. Did you mean 'gpt2'"),
        (["gpt2", "--recipe", "gpt2"], "two were given"),
        (["--random-init", "gpt2", "--recipe", "gpt2"], "two were given"),
        (["--recipe", "default", "--set", "dept=3"], "Did you mean 'depth'?"),
        (["--recipe", "default", "--set", "width=48", "--set", "heads=5"], "cannot be divided"),
        (["--recipe", "default", "--set", "norm=null"], "is a name such as"),
        (["--recipe", "default", "--set", "connection=hyper(lanes"], "Cannot read the choice"),
        (["--recipe", "default", "--set", "depth=1", "--text", "hello"], "without a tokenizer"),
        (["--recipe", "default", "--set", "depth=1", "--dtype", "float31"], "float31"),
    ],
)
def test_a_wrong_recipe_is_answered_with_what_to_do(leadline, options, sentence):
    said = leadline("measure", *options)
    assert said.code == 2
    assert said.out == ""
    assert said.err.startswith("leadline: ")
    assert said.err.count("\n") == 1
    assert sentence in said.err
