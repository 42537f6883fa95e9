"""Every language has the same lesson, no string is missing, and the texts are easy to read."""

import re

import pytest

from leadline.claims import CLAIMS
from leadline.errors import CatalogError, UnknownName
from leadline.web.lessons import LANGUAGES
from leadline.web.lessons import reading as module
from leadline.web.lessons.reading import (
    english_digest,
    english_lesson,
    lesson_ids,
    read_lesson,
    translated_lesson,
)

ALL = [(name, language) for name in lesson_ids() for language in LANGUAGES]
LETTERS = {"en": r"[A-Za-z]", "zh": r"[\u4e00-\u9fff]", "ru": r"[\u0400-\u04ff]"}
MOST_WORDS, USUAL_WORDS, MOST_SIGNS = 32, 14, 75
PATH = module.TEXTS / "zh" / "01-shortcut.toml"


def table(language="zh"):
    return module._table(module.TEXTS / language / "01-shortcut.toml")


def spoken(text):
    """The text as it is read: without formulas, marks and the numbers' names."""
    text = re.sub(r"\$[^$]*\$", "x", text)
    return re.sub(r"\{[a-z0-9_]+\}", "1", text).replace("**", "").replace("`", "")


def sentences(text):
    lines = re.split(r"\n\s*(?:\n|- )", spoken(text))
    return [
        one for line in lines for one in re.split(r"(?<=[.!?:;。！？：；])\s*(?=\D)", line) if one
    ]


@pytest.mark.parametrize(("name", "language"), ALL)
def test_every_language_has_the_same_parts_figures_and_claims(name, language):
    english, lesson = read_lesson(name, "en"), read_lesson(name, language)
    assert [part.name for part in lesson.parts] == [part.name for part in english.parts]
    assert [part.facts for part in lesson.parts] == [part.facts for part in english.parts]
    assert lesson.numbers == english.numbers
    assert [key for key, _ in lesson.strings()] == [key for key, _ in english.strings()]


@pytest.mark.parametrize(("name", "language"), ALL)
def test_every_text_is_in_its_language(name, language):
    strings = dict(read_lesson(name, language).strings())
    names = ("base_label", "other_label")
    foreign = {
        key: text
        for key, text in strings.items()
        if not re.search(LETTERS[language], spoken(text))
        and not (key.endswith(names) and text in ("DeepNorm", "Pre-LN", "Post-LN"))
    }
    assert not foreign
    if language != "en":
        english = dict(read_lesson(name, "en").strings())
        alike = {key for key, text in strings.items() if text == english[key]}
        assert alike <= {key for key in strings if key.endswith(names)}


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_folder_has_one_file_for_every_lesson(language):
    files = [path.stem for path in sorted((module.TEXTS / language).iterdir())]
    assert files == [f"{at:02}-{name}" for at, name in enumerate(lesson_ids(), start=1)]
    assert 7 <= len(files) <= 10


@pytest.mark.parametrize("name", lesson_ids())
def test_every_claim_and_every_number_of_a_claim_exists(name):
    lesson = read_lesson(name, "en")
    shown = [part.facts["claim"] for part in lesson.parts if part.kind == "claim"]
    assert len(shown) >= 2
    assert set(shown) <= set(CLAIMS.names())
    for number in lesson.numbers.values():
        assert not number.claim or number.claim in CLAIMS.names()


@pytest.mark.parametrize("name", lesson_ids())
def test_every_lesson_asks_a_question_and_its_formulas_have_no_words(name):
    parts = read_lesson(name, "en").parts
    assert any(part.kind == "question" for part in parts)
    assert not [part.name for part in parts if r"\text" in part.facts.get("latex", "")]


@pytest.mark.parametrize(("name", "language"), ALL)
def test_sentences_are_short(name, language):
    found = [one for _, text in read_lesson(name, language).strings() for one in sentences(text)]
    if language == "zh":
        assert not [one for one in found if len(one) > MOST_SIGNS]
        return
    lengths = [len(one.split()) for one in found]
    assert not [one for one in found if len(one.split()) > MOST_WORDS]
    assert sum(lengths) / len(lengths) <= USUAL_WORDS


def test_a_translation_of_other_english_is_refused_until_somebody_looks_at_it():
    english = read_lesson("shortcut", "en")
    with pytest.raises(CatalogError, match="made from another English text") as refused:
        translated_lesson(english, "zh", table() | {"of": "00000000"}, PATH)
    assert english_digest(english) in str(refused.value)


def test_a_missing_text_is_named_with_its_file_and_key():
    entry = table()
    del entry["branch"]["body"]
    with pytest.raises(CatalogError, match=r"01-shortcut.toml, branch.body: the text is missing"):
        translated_lesson(read_lesson("shortcut", "en"), "zh", entry, PATH)


def test_a_translation_keeps_the_formulas_of_its_english():
    entry = table()
    entry["branch"]["body"] = entry["branch"]["body"].replace("$F(x)$", "F")
    with pytest.raises(CatalogError, match=r"branch.body: .* formulas .*\$F\(x\)\$"):
        translated_lesson(read_lesson("shortcut", "en"), "zh", entry, PATH)


def test_a_key_that_is_not_known_is_refused():
    with pytest.raises(CatalogError, match="there is no key 'colour'"):
        translated_lesson(read_lesson("shortcut", "en"), "zh", table() | {"colour": "red"}, PATH)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("curves", ["stream.colour"], "'stream.colour' is none of"),
        ("base", {"deep": 3}, "'deep' is none of"),
        ("knobs", [], "one or two knobs"),
        ("checks", [], "nothing holds the caption"),
        ("checks", [{"curve": "gradient.stream", "read": "first"}], "no at_most"),
        ("try", "Turn $x$.", "plain, without formulas"),
    ],
)
def test_a_figure_that_cannot_be_drawn_or_checked_is_refused(key, value, message):
    entry = table("en")
    figure = next(part for part in entry["parts"] if part["kind"] == "figure")
    figure[key] = value
    with pytest.raises(CatalogError, match=message):
        english_lesson("shortcut", entry, PATH)


def test_a_number_in_a_text_is_one_of_the_list():
    entry = table("en")
    entry["answer"] += " It is {many}."
    with pytest.raises(CatalogError, match=r"\{many\}"):
        english_lesson("shortcut", entry, PATH)


def test_unknown_lessons_and_languages_are_named():
    with pytest.raises(UnknownName, match="shortcuts"):
        read_lesson("shortcuts", "en")
    with pytest.raises(UnknownName, match="de"):
        read_lesson("shortcut", "de")
