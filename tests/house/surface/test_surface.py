"""What users could import, type and parse before the tree was reorganised is still there."""

from __future__ import annotations

import ast
import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

import leadline
from tools import surface as tool

# Rooms that have moved are still found under their old names, with a warning.
pytestmark = pytest.mark.filterwarnings("ignore:leadline.* is now leadline:DeprecationWarning")

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
RECORDED: dict[str, Any] = json.loads((HERE / "surface.json").read_text(encoding="utf-8"))
CHANGES: dict[str, str] = json.loads((HERE / "changes.json").read_text(encoding="utf-8"))


def unexplained(present: dict[str, Any], wanted: set[str]) -> dict[str, str]:
    """Differences that nobody wanted, and wanted ones that are none."""
    differences = tool.differences(RECORDED, present)
    surplus = {place: sentence for place, sentence in differences.items() if place not in wanted}
    return surplus | {
        place: "is in changes.json and is no difference"
        for place in wanted
        if place not in differences
    }


@pytest.mark.parametrize("part", ["names", "imports", "results", "commands", "catalogs"])
def test_nothing_that_was_public_is_missing_or_changed(part):
    wanted = {place for place in CHANGES if place.startswith(f"{part}: ")}
    assert unexplained(tool.surface([part]), wanted) == {}


@pytest.mark.parametrize("slow", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_key_that_a_command_printed_is_still_printed(slow):
    cases = [case for case in tool.CASES if case.slow == slow]
    wanted = {
        place
        for place in CHANGES
        if any(place.startswith(f"json: {case.name} /") for case in cases)
    }
    assert unexplained({"json": tool.json_keys(cases)}, wanted) == {}


def test_every_wanted_change_has_a_reason_and_a_place():
    assert all(isinstance(reason, str) and len(reason) > 10 for reason in CHANGES.values())
    assert {place.partition(": ")[0] for place in CHANGES} <= set(RECORDED)


def test_every_command_that_prints_json_was_recorded():
    printing = [
        path for path, facts in RECORDED["commands"].items() if "--json" in facts["options"]
    ]
    assert len(printing) == 27
    for path in printing:
        words = path.removeprefix("leadline ")
        assert any(re.match(rf"{words}\b", case.arguments) for case in tool.CASES), path
    assert set(RECORDED["json"]) == {case.name for case in tool.CASES}


def test_what_pages_and_examples_import_is_on_the_list():
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "examples").glob("*.py")]
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        sources += re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    imported = {
        (node.module, alias.name)
        for source in sources
        if "from leadline" in source
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("leadline.")
        for alias in node.names
    }
    assert len(imported) >= 5
    listed = {(module, name) for module, names in tool.IMPORTS.items() for name in names}
    assert imported <= listed


# ---- the tool itself: what it lists, and what it calls a difference ----------------------------


def test_recorded_facts_agree_with_the_help_and_the_pages():
    measure = RECORDED["commands"]["leadline measure"]
    assert measure["options"]["--loss"]["type"] == ["auto", "next-token", "masked", "random"]
    assert measure["options"]["--seed"]["default"] == 0
    assert measure["options"]["--set"]["multiple"] and measure["options"]["--json"]["flag"]
    assert RECORDED["commands"]["leadline reproduce gradient-flow"]["options"]["--no-training"] == {
        "default": True,
        "flag": True,
        "multiple": False,
        "required": False,
        "sets": False,
        "type": "boolean",
    }
    declare = {one["name"]: one for one in RECORDED["names"]["declare"]["parameters"]}
    assert declare["parallel"] == {"name": "parallel", "kind": "keyword_only", "default": "False"}
    assert "default" not in declare["blocks"]
    assert {"LeadlineError", "Exception"} <= set(RECORDED["names"]["RecordError"]["is"])


def test_attributes_that_the_pages_read_can_be_reached():
    results = RECORDED["results"]
    row = results[results["trainability().rows"]["like"]]
    assert {"name", "usable", "places"} <= set(row)
    assert {"depth", "fails_at", "by_seed"} <= set(results["trainability().row().usable"])
    assert {"provenance", "to_pandas", "__getitem__"} <= set(results["Record"])
    assert results["measure()"] == {"like": "Record"}


SMALL: dict[str, Any] = {
    "names": {
        "gauge": {
            "kind": "function",
            "parameters": [
                {"name": "model", "kind": "positional_or_keyword"},
                {"name": "inputs", "kind": "positional_or_keyword", "default": "None"},
                {"name": "seed", "kind": "keyword_only", "default": "0"},
            ],
        },
        "DeepError": {"kind": "class", "is": ["DeepError", "Exception"]},
    },
    "results": {
        "gauge()": {"depth": {}, "save": {"parameters": []}},
        "other()": {"like": "gauge()"},
        "gauge().depth": {"by_seed": {}},
        "leadline.lab:Axis": {"labels": {}},
        "leadline.lab:Axis.labels": {"text": {}},
    },
    "commands": {
        "leadline gauge": {
            "arguments": [{"nargs": 1, "required": True, "type": "text"}],
            "options": {
                "--loss": {"default": "auto", "required": False, "type": ["auto", "random"]},
            },
        }
    },
    "catalogs": {
        "leadline.norms": {"plain": [{"name": "eps", "kind": "keyword_only", "default": "1"}]}
    },
    "json": {"gauge": {"/": "object", "/value": "null or number"}},
}


def put(place: str, value: Any) -> dict[str, Any]:
    """The small surface with one thing replaced; None takes it away."""
    changed = copy.deepcopy(SMALL)
    *path, last = place.split(" > ")
    inside: Any = changed
    for key in path:
        inside = inside[int(key) if isinstance(inside, list) else key]
    key: Any = int(last) if isinstance(inside, list) else last
    if value is None:
        del inside[key]
    elif isinstance(inside, list):
        inside[key:key] = [value]
    else:
        inside[key] = value
    return changed


@pytest.mark.parametrize(
    ("place", "value", "named"),
    [
        ("names > gauge", None, "names: gauge"),
        ("names > gauge > kind", "class", "names: gauge"),
        ("names > gauge > parameters > 2", None, "names: gauge(seed)"),
        ("names > gauge > parameters > 2 > default", "1", "names: gauge(seed)"),
        ("names > gauge > parameters > 1 > default", None, "names: gauge(inputs)"),
        ("names > gauge > parameters > 1 > kind", "keyword_only", "names: gauge(inputs)"),
        (
            "names > gauge > parameters > 1",
            {"name": "probes", "kind": "positional_or_keyword", "default": "None"},
            "names: gauge",
        ),
        (
            "names > gauge > parameters > 3",
            {"name": "width", "kind": "keyword_only"},
            "names: gauge(width)",
        ),
        ("names > DeepError > is", ["DeepError"], "names: DeepError"),
        ("results > gauge() > depth", None, "results: gauge().depth"),
        ("results > gauge() > save", {}, "results: gauge().save"),
        ("results > gauge().depth", None, "results: gauge().depth"),
        ("results > gauge().depth > by_seed", None, "results: gauge().depth.by_seed"),
        ("results > leadline.lab:Axis > labels", None, "results: leadline.lab:Axis.labels"),
        ("results > leadline.lab:Axis.labels", None, "results: leadline.lab:Axis.labels"),
        ("results > other()", None, "results: other()"),
        ("results > other()", {"depth": {}}, "results: other().save"),
        ("commands > leadline gauge", None, "commands: leadline gauge"),
        ("commands > leadline gauge > arguments > 0", None, "commands: leadline gauge"),
        ("commands > leadline gauge > options > --loss", None, "commands: leadline gauge --loss"),
        (
            "commands > leadline gauge > options > --loss > default",
            "random",
            "commands: leadline gauge --loss",
        ),
        (
            "commands > leadline gauge > options > --loss > type",
            ["auto"],
            "commands: leadline gauge --loss",
        ),
        (
            "commands > leadline gauge > options > --name",
            {"default": None, "required": True, "type": "text"},
            "commands: leadline gauge --name",
        ),
        ("catalogs > leadline.norms", None, "catalogs: leadline.norms"),
        ("catalogs > leadline.norms > plain", None, "catalogs: leadline.norms plain"),
        ("catalogs > leadline.norms > plain > 0", None, "catalogs: leadline.norms plain(eps)"),
        ("json > gauge > /value", None, "json: gauge /value"),
        ("json > gauge > /value", "string", "json: gauge /value"),
    ],
)
def test_what_breaks_a_user_is_a_difference(place, value, named):
    assert list(tool.differences(SMALL, put(place, value))) == [named]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("names > other", {"kind": "value"}),
        (
            "names > gauge > parameters > 2",
            {"name": "probes", "kind": "positional_or_keyword", "default": "None"},
        ),
        (
            "names > gauge > parameters > 3",
            {"name": "width", "kind": "keyword_only", "default": "8"},
        ),
        ("names > gauge > parameters > 2 > kind", "positional_or_keyword"),
        ("names > gauge > parameters > 0 > default", "None"),
        ("results > gauge() > width", {}),
        ("results > other()", {"depth": {}, "save": {"parameters": []}, "more": {}}),
        ("commands > leadline gauge > options > --loss > type", ["auto", "masked", "random"]),
        (
            "commands > leadline gauge > arguments > 1",
            {"nargs": 1, "required": False, "type": "text"},
        ),
        ("catalogs > leadline.norms > other", []),
        ("json > gauge > /value", "number"),
        ("json > gauge > /more", "string"),
    ],
)
def test_what_is_added_or_allows_more_is_no_difference(place, value):
    assert tool.differences(SMALL, put(place, value)) == {}


def test_what_stood_behind_something_that_is_missing_is_not_told_again():
    without = copy.deepcopy(SMALL)
    del without["results"]["gauge()"]["depth"], without["results"]["gauge().depth"]
    assert list(tool.differences(SMALL, without)) == ["results: gauge().depth"]


def test_a_module_that_is_missing_is_told_once(monkeypatch):
    monkeypatch.setattr(
        tool, "IMPORTS", {m: n for m, n in tool.IMPORTS.items() if m != "leadline.lab.grid"}
    )
    wanted = {place for place in CHANGES if place.startswith(("imports: ", "results: "))}
    assert unexplained(tool.surface(["imports", "results"]), wanted) == {
        "imports: leadline.lab.grid:Axis": "is missing",
        "imports: leadline.lab.grid:Grid": "is missing",
    }


def test_a_name_that_was_taken_away_is_noticed(monkeypatch):
    names = [name for name in leadline.__all__ if name != "paths"]
    monkeypatch.setattr(leadline, "__all__", names)
    wanted = {place for place in CHANGES if place.startswith("names: ")}
    assert unexplained(tool.surface(["names"]), wanted) == {"names: paths": "is missing"}
