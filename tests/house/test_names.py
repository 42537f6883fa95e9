"""Names that say nothing are not used, and every name is explained."""

import ast
import inspect
from pathlib import Path

import pytest

import leadline

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "leadline"
FILES = sorted(SOURCE.rglob("*.py"))
EMPTY_WORDS = {"base", "common", "core", "helper", "helpers", "manager", "misc", "util", "utils"}
PUBLIC = [name for name in leadline.__all__ if not name.startswith("__")]


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_no_file_and_no_class_has_a_name_that_says_nothing(file):
    words = set(file.stem.strip("_").split("_")) | {file.parent.name}
    assert not words & EMPTY_WORDS
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            ending = node.name.lower()
            assert not ending.endswith(("base", "helper", "manager", "utils")), node.name


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_every_file_says_what_it_is_for(file):
    assert ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_documented(name):
    value = getattr(leadline, name)
    assert inspect.getdoc(value)
    assert value.__doc__, f"{name} only inherits its docstring"


def test_no_public_name_is_hidden_by_a_module():
    modules = {path.stem for path in SOURCE.iterdir()}
    assert not modules & set(PUBLIC)


def test_every_public_name_stands_in_dir():
    assert set(PUBLIC) <= set(dir(leadline))


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'mesure'"):
        _ = leadline.mesure
