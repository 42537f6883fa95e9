from pathlib import Path

import pytest

from leadline.cli.request.models import ModelRequest, read_overrides, read_size
from leadline.errors import InputError, LoadingError


def test_a_size_is_examples_times_length():
    assert read_size("4x128", "--random") == (4, 128)
    assert read_size("1×7", "--random") == (1, 7)


@pytest.mark.parametrize(
    "text", ["", "4", "4x", "x128", "0x128", "4x0", "-4x128", "4x128x2", "4.5x2"]
)
def test_what_is_no_size_is_refused(text):
    with pytest.raises(InputError, match="is not a size; write examples, x, length"):
        read_size(text, "--random")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("48", 48),
        ("0.5", 0.5),
        ("true", True),
        ("True", True),
        ("null", None),
        ("None", None),
        ("gelu", "gelu"),
        ('"48"', "48"),
        ("[1, 2]", [1, 2]),
        ('{"type": "linear"}', {"type": "linear"}),
        ("a=b", "a=b"),
        ("", ""),
    ],
)
def test_the_value_of_an_override_is_json_where_it_can_be(text, value):
    assert read_overrides([f"key={text}"]) == {"key": value}


@pytest.mark.parametrize("pair", ["n_layer", "=48", ""])
def test_what_is_no_override_is_refused(pair):
    with pytest.raises(LoadingError, match="is not KEY=VALUE"):
        read_overrides([pair])


def test_two_kinds_of_input_are_refused():
    with pytest.raises(InputError, match="not --text and --random together"):
        ModelRequest(text=["a"], random="4x4").check()
    with pytest.raises(InputError, match="--windows cuts a text file"):
        ModelRequest(text=["a"], windows="4x4").check()
    with pytest.raises(InputError, match="--windows 'x' is not a size"):
        ModelRequest(text_file=Path("a"), windows="x").check()
    ModelRequest(text=["a", "b"]).check()
    ModelRequest().check()


@pytest.mark.parametrize(
    ("source", "random_init", "recipe", "said"),
    [
        (None, None, None, "none was given"),
        ("gpt2", "gpt2", None, "two were given"),
        ("gpt2", None, "gpt2", "two were given"),
        (None, "gpt2", "gpt2", "two were given"),
        ("gpt2", "gpt2", "gpt2", "all were given"),
    ],
)
def test_a_model_is_named_once(source, random_init, recipe, said):
    request = ModelRequest(source, random_init, recipe)
    with pytest.raises(LoadingError, match=f"--recipe NAME .*; {said}"):
        request.load()
