"""Names that say nothing are not used, and every name is explained."""

import ast
import importlib
import inspect
from collections import Counter
from pathlib import Path

import pytest

import leadline

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "leadline"
FILES = sorted(SOURCE.rglob("*.py"))
EMPTY_WORDS = {"base", "common", "core", "helper", "helpers", "manager", "misc", "util", "utils"}
EMPTY_ENDINGS = ("base", "helper", "manager", "utils")
MOST = 20
CATALOGS = {"parts/connections", "cli"}
PUBLIC = [name for name in leadline.__all__ if not name.startswith("__")]


def test_no_file_and_no_class_has_a_name_that_says_nothing():
    empty = []
    for file in FILES:
        words = set(file.stem.strip("_").split("_")) | {file.parent.name}
        empty += [f"{file}: {word}" for word in words & EMPTY_WORDS]
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name.lower().endswith(EMPTY_ENDINGS):
                empty.append(f"{file}: {node.name}")
    assert not empty


def test_every_file_says_what_it_is_for():
    silent = [
        str(file)
        for file in FILES
        if not ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    ]
    assert not silent


def test_one_class_name_has_one_meaning():
    """The public ones; `Sublayer` is the same thing seen in a model and built of parts."""
    homes: dict[str, list[str]] = {}
    for file in FILES:
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(file.relative_to(SOURCE).as_posix())
    shared = {name: places for name, places in homes.items() if len(places) > 1}
    assert set(shared) == {"Sublayer"}, shared


def test_no_room_is_crowded():
    """A folder of more than 20 files is a drawer, unless it is a catalog: one file per entry."""
    files = Counter(file.parent for file in FILES if file.stem != "__init__")
    crowded = {
        folder.relative_to(SOURCE).as_posix() for folder, count in files.items() if count > MOST
    }
    assert crowded <= CATALOGS


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_documented(name):
    value = getattr(leadline, name)
    assert inspect.getdoc(value)
    assert value.__doc__, f"{name} only inherits its docstring"


def test_no_public_name_is_hidden_by_a_module():
    modules = {path.stem for path in SOURCE.iterdir()}
    # The room of training is the function too: it can be called, whoever has imported it before.
    assert modules & set(PUBLIC) == {"lab"}
    assert leadline.lab is importlib.import_module("leadline.lab") and callable(leadline.lab)


def test_every_public_name_stands_in_dir():
    assert set(PUBLIC) <= set(dir(leadline))


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'mesure'"):
        _ = leadline.mesure
