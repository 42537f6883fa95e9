"""The vocabulary of `explain` is that of the docs, and points to things that exist."""

import re
from pathlib import Path

from leadline.cli.shelves.concepts import concept_key, read_concepts
from leadline.cli.shelves.shelves import open_shelf
from leadline.reading.diagnosis.rule import RULES

CONCEPTS = read_concepts()
PAGE = Path(__file__).parents[3] / "docs" / "concepts.md"


def test_every_noun_of_the_page_is_explained_in_its_words():
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.M)
    nouns = [(name, text) for nouns, text in rows for name in nouns.split(", ")]
    assert len(nouns) > 40
    for name, text in nouns:
        if name not in ("noun", "---"):
            key = {"unigram": "unigram-entropy"}.get(name, concept_key(name))
            assert CONCEPTS[key].summary == text, name


def test_concepts_name_rules_and_quantities_that_exist():
    named = {rule for concept in CONCEPTS.values() for rule in concept.rules}
    assert named <= set(RULES.names())
    quantities = open_shelf("quantities")
    seen = {word for concept in CONCEPTS.values() for word in concept.see if "." in word}
    assert seen and seen <= set(quantities)


def test_concepts_say_what_they_are():
    collapse = CONCEPTS["rank-collapse"]
    assert collapse.in_full().startswith("The residual goes to zero with depth: all tokens")
    assert collapse.facts()["rules"] == "tokens-equal"
    assert CONCEPTS["pre-norm"].in_full().endswith(".")
