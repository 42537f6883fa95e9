"""What the browser loads is small, complete, and in forms that a static site can join."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from leadline.reading.page import vendor
from leadline.web import pages
from leadline.web.playground.laws import law_labels
from leadline.web.playground.presets import STORIES, Story
from leadline.web.playground.verdict_words import PHRASES

PAGES = Path(pages.__file__).parent
VENDOR = Path(vendor.__file__).parent
MODULES = sorted((PAGES / "modules").rglob("*.js"))
WORDS = {path.stem: json.loads(path.read_text("utf-8")) for path in (PAGES / "words").iterdir()}
SHELL = [
    path
    for path in MODULES
    if path.parent.name in ("modules", "play", "claims", "records", "diagnose")
]
IMPORT = re.compile(r'^import \{ \w+(?:, \w+)* \} from "(\.{1,2}/[\w./-]+\.js)";$')
EXPORT = re.compile(r"^export (?:function|const) \w+")
VIEW = re.compile(r'^import \{ mount as mount\w+ \} from "(\./\w+/index\.js)";$')
USED = re.compile(r'\bt\("([\w.]+)"')


def name(path: Path) -> str:
    return path.relative_to(PAGES).as_posix()


def test_pages_and_chart_library_weigh_less_than_a_megabyte():
    files = [path for path in PAGES.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    files += [path for path in VENDOR.iterdir() if path.name.startswith("uplot")]
    assert sum(path.stat().st_size for path in files) < 1_000_000


def test_the_document_names_only_files_that_are_there():
    document = (PAGES / "index.html").read_text("utf-8")
    for link in re.findall(r'(?:href|src)="([^"#][^"]*)"', document):
        if link.startswith("data:"):
            continue
        inside = link.removeprefix("static/")
        assert link.startswith("static/")
        place = VENDOR if inside.startswith("vendor/") else PAGES
        assert (place / inside.removeprefix("vendor/")).is_file(), link


def test_the_document_holds_neither_scripts_nor_styles_of_its_own():
    document = (PAGES / "index.html").read_text("utf-8")
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", document)


@pytest.mark.parametrize("module", MODULES, ids=name)
def test_imports_and_exports_have_the_simplest_form(module: Path):
    for line in module.read_text("utf-8").splitlines():
        if line.startswith("import"):
            # Every view exports `mount`, so the shell gives them names of their own.
            found = IMPORT.match(line) or (module.name == "app.js" and VIEW.match(line))
            assert found, line
            assert (module.parent / found[1]).is_file(), line
        if line.startswith("export"):
            assert EXPORT.match(line), line
        assert not re.search(r"\bimport\(", line)


@pytest.mark.parametrize("module", MODULES, ids=name)
def test_one_module_asks_the_server(module: Path):
    asks = re.search(
        r"\bfetch\(|EventSource|XMLHttpRequest|WebSocket",
        re.sub(r"//.*", "", module.read_text("utf-8")),
    )
    assert bool(asks) == (module.name == "api.js")


@pytest.mark.parametrize("module", MODULES, ids=name)
def test_no_text_becomes_a_part_of_the_page(module: Path):
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", module.read_text("utf-8")
    )


def numbers(text: str) -> list[str]:
    return sorted(re.findall(r"\d+(?:\.\d+)?", text))


@pytest.mark.parametrize("language", ["zh", "ru"])
def test_every_language_has_every_word(language: str):
    # What the engine says in English needs no word of the page: stories, laws, phrases of a verdict.
    joints = {"sentence": "{about}{said}", "comma": "", "semicolon": ""}
    told = {f"preset.{story.id}.story" for story in STORIES} | {
        f"law.{one}" for one in law_labels()
    }
    told |= {f"verdict.{key}" for key in (*PHRASES, *joints)}
    assert set(WORDS[language]) == set(WORDS["en"]) | told
    for key, text in {**PHRASES, **joints}.items():
        holes = set(re.findall(r"\{\w+\}", text))
        assert set(re.findall(r"\{\w+\}", WORDS[language][f"verdict.{key}"])) == holes, key
    for key, text in WORDS["en"].items():
        assert text.strip() and WORDS[language][key].strip()
        holes = set(re.findall(r"\{\w+\}", text))
        assert set(re.findall(r"\{\w+\}", WORDS[language][key])) == holes, key


@pytest.mark.parametrize("language", ["zh", "ru"])
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.id)
def test_a_story_says_the_same_numbers_of_the_same_designs(story: Story, language: str):
    text = WORDS[language][f"preset.{story.id}.story"]
    assert numbers(text) == numbers(story.story)
    for side in "AB":
        assert bool(re.search(rf"\b{side}\b", text, re.ASCII)) == bool(
            re.search(rf"\b{side}\b", story.story)
        )
    assert not re.search(r"左边|右边|слева|справа|\b(?:left|right)\b", text + story.story)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.id)
def test_every_story_has_a_short_title(story: Story):
    assert all(f"preset.{story.id}" in words for words in WORDS.values())
    titles = {key for key in WORDS["en"] if key.startswith("preset.")}
    assert titles == {f"preset.{one.id}" for one in STORIES}


def test_words_agree_with_those_of_the_claims():
    """The same thing has one name on the page, in the lessons and on the page of claims."""
    assert not [key for key, text in WORDS["zh"].items() if re.search("词元|秩坍缩|规范化", text)]
    strange = re.compile("[ёЁ]|ошибк|прямого пути|[Нн]ормы? (?:до|после)|Место нормы", re.UNICODE)
    assert not [key for key, text in WORDS["ru"].items() if strange.search(text)]


@pytest.mark.parametrize("module", SHELL, ids=name)
def test_every_word_that_a_module_asks_for_is_there(module: Path):
    assert set(USED.findall(module.read_text("utf-8"))) <= set(WORDS["en"])
