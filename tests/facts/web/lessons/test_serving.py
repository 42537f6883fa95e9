"""The JSON of lessons: verdicts and numbers as the ledger has them, formulas as MathML."""

import json
import re
from xml.etree import ElementTree

import pytest

from leadline.claims.ledger import default_ledger
from leadline.claims.page.article import kind_of
from leadline.errors import MissingExtra
from leadline.web.lessons import LANGUAGES, lesson_json, lessons_json, markup
from leadline.web.lessons.reading import lesson_ids

ALL = [(name, language) for name in lesson_ids() for language in LANGUAGES]


def formulas(value):
    """Every formula of a piece of JSON."""
    if isinstance(value, list):
        return [one for entry in value for one in formulas(entry)]
    if not isinstance(value, dict):
        return []
    inside = [one for entry in value.values() for one in formulas(entry)]
    return [value, *inside] if "latex" in value else inside


def written(value):
    """Every text of a piece of JSON that a reader sees."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [one for entry in value for one in written(entry)]
    if isinstance(value, dict):
        return [
            one
            for key, entry in value.items()
            if key not in ("latex", "math", "base", "other")
            for one in written(entry)
        ]
    return []


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_list_has_every_lesson_with_three_to_six_minutes(language):
    found = lessons_json(language)
    assert [one["id"] for one in found] == list(lesson_ids())
    assert all(3 <= one["minutes"] <= 6 for one in found)
    assert len({one["title"] for one in found}) == len(found)


@pytest.mark.parametrize(("name", "language"), ALL)
def test_a_lesson_is_json_and_knows_its_neighbours(name, language):
    found = lesson_json(name, language)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    ids = [None, *lesson_ids(), None]
    at = ids.index(name, 1)
    assert (found["previous"], found["next"]) == (ids[at - 1], ids[at + 1])


@pytest.mark.parametrize(("name", "language"), ALL)
def test_no_mark_and_no_hole_is_left_in_a_text(name, language):
    for text in written(lesson_json(name, language)):
        assert not re.search(r"\{[a-z]|\*\*|\$|`|…|\bnan\b", text), text


@pytest.mark.parametrize(("name", "language"), ALL)
def test_every_verdict_is_that_of_the_ledger(name, language):
    cards = [part for part in lesson_json(name, language)["parts"] if part["kind"] == "claim"]
    ledger = default_ledger(None)
    for card in cards:
        ruling = ledger.ruling(card["claim"])
        assert card["verdict"] == kind_of(ruling.verdict)
        assert card["verdict"] != "unmeasured"
        assert len(card["numbers"]) == len(ruling.checked)
        assert card["says"]
        assert card["address"] == f"#/claims?claim={card['claim']}"
        if language == "en":
            assert card["verdict_words"] == ruling.verdict
        else:
            assert card["verdict_words"] != ruling.verdict
            assert card["title"] != lesson_card(name, card["claim"])["title"]


def lesson_card(name, claim):
    parts = lesson_json(name, "en")["parts"]
    return next(part for part in parts if part["kind"] == "claim" and part["claim"] == claim)


def test_a_number_of_a_claim_is_the_mean_over_its_seeds():
    ruling = default_ledger(None).ruling("layernorm-jacobian-below-one")
    mean = sum(ruling.numbers["norm_ten"]) / len(ruling.numbers["norm_ten"])
    assert f"has the norm {mean:.1f}" in " ".join(written(lesson_json("layernorm", "en")))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", lesson_ids())
def test_every_formula_is_mathml_that_a_strict_page_may_show(name, language):
    pytest.importorskip("latex2mathml")
    found = formulas(lesson_json(name, language))
    assert found
    for one in found:
        assert ElementTree.fromstring(one["math"]).tag == "math"
        assert not re.search(r"style=|on\w+=|href", one["math"])


def test_without_the_library_a_formula_is_its_latex(monkeypatch):
    def missing(latex, *, display=False):
        raise MissingExtra("latex2mathml is not installed")

    monkeypatch.setattr(markup, "mathml", missing)
    assert markup.pieces("so $x + 0 = x$.") == [
        {"text": "so "},
        {"math": None, "latex": "x + 0 = x"},
        {"text": "."},
    ]


def test_paragraphs_and_lists_become_blocks():
    found = markup.blocks("One **term**\nhere.\n\n- first `code`\n- second\n  goes on\n\nLast.")
    assert found == [
        {"kind": "paragraph", "pieces": [{"text": "One "}, {"strong": "term"}, {"text": " here."}]},
        {
            "kind": "list",
            "items": [[{"text": "first "}, {"code": "code"}], [{"text": "second goes on"}]],
        },
        {"kind": "paragraph", "pieces": [{"text": "Last."}]},
    ]
