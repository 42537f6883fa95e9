"""Every word of the page has its translation, and a number stands as people write it."""

from __future__ import annotations

import json
import re

import pytest

from leadline.claims.page.page import claims_page, page_words, ruling_words
from leadline.claims.page.words import Words, number, raised, shown_number
from leadline.errors import InputError
from tests.synthetic_claims import languages, ruling, rulings


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("1.1e12", "1.1\u202f×\u202f10<sup>12</sup>"),
        ("about -3.0e-05.", "about −3.0\u202f×\u202f10<sup>−5</sup>."),
        ("1e-16", "10<sup>−16</sup>"),
        ("3.0e+00", "3.0"),
        ("-1e3", "−10<sup>3</sup>"),
        ("GPT-2 and 1-2", "GPT-2 and 1-2"),
        ("inf, -inf", "∞, −∞"),
        ("information, nan, banana", "information, NaN, banana"),
        ("a < b & c", "a &lt; b &amp; c"),
        ("W_1, g_{l+1}, d_model", "W<sub>1</sub>, g<sub>l+1</sub>, d<sub>model</sub>"),
        ("‖F_l‖_2", "‖F<sub>l</sub>‖<sub>2</sub>"),
        ("as_json", "as_json"),
        ("0.9^100, L^-0.5, x^{-1}", "0.9<sup>100</sup>, L<sup>−0.5</sup>, x<sup>−1</sup>"),
        ("|W^2000|^(1/2000)", "|W<sup>2000</sup>|<sup>1/2000</sup>"),
        ("J - I", "J\u00a0− I"),
    ],
)
def test_numbers_indices_and_exponents_are_set(text: str, shown: str) -> None:
    assert raised(text) == shown


def test_numbers_in_pictures_use_plain_characters() -> None:
    assert number(-1.5e-12) == "−1.50\u202f×\u202f10⁻¹²"
    assert number(float("inf")) == "∞"
    assert shown_number(1.25e12) == "1.25\u202f×\u202f10<sup>12</sup>"


def test_a_missing_translation_is_an_error_with_the_string_and_the_language() -> None:
    found = rulings()
    tables = languages(found)
    lost = found[0].claim.why
    del tables["ru"][lost]
    with pytest.raises(InputError, match="Русский") as error:
        claims_page(found, languages=tables, code={}, about={})
    assert repr(lost) in str(error.value)
    assert str(error.value).startswith("1 of ")


def test_an_empty_translation_is_a_missing_one() -> None:
    found = rulings()
    tables = languages(found)
    tables["zh"]["Why"] = ""
    with pytest.raises(InputError, match="'Why'"):
        claims_page(found, languages=tables, code={}, about={})


@pytest.mark.parametrize("label", ["design number 0", "norm of the gradient", "layer", "or not"])
def test_labels_of_pictures_and_words_of_formulas_need_a_translation_too(label: str) -> None:
    found = rulings()
    assert label in [text for one in found for text in ruling_words(one)]
    tables = languages(found)
    del tables["zh"][label]
    with pytest.raises(InputError, match=label):
        claims_page(found, languages=tables, code={}, about={})


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda text: text.replace("{ratio}", "{ration}"), "placeholders"),
        (lambda text: text.replace("{big:.1e}", "{big}"), "placeholders"),
        (lambda text: text.replace(r"$L \log c$", "$L$"), "formulas"),
    ],
)
def test_a_translation_has_the_placeholders_and_formulas_of_its_original(change, what) -> None:
    found = [ruling("one")]
    tables = languages(found)
    why = found[0].claim.why
    assert change(tables["zh"][why]) != tables["zh"][why]
    tables["zh"][why] = change(tables["zh"][why])
    with pytest.raises(InputError, match=f"not the same {what}"):
        claims_page(found, languages=tables, code={}, about={})


@pytest.mark.parametrize("code", ["en", "fr"])
def test_an_unknown_language_is_refused(code: str) -> None:
    with pytest.raises(InputError, match=repr(code)):
        Words({code: {}})


def test_a_phrase_that_is_not_in_the_list_cannot_be_written() -> None:
    words = Words({})
    with pytest.raises(InputError, match="no phrase"):
        words.page("A phrase of nobody's.")
    with pytest.raises(InputError, match="no phrase"):
        words.attributes(title="A phrase of nobody's.")


def test_numbers_are_filled_in_after_translating() -> None:
    found = [ruling("one")]
    tables = languages(found)
    why = found[0].claim.why
    tables["zh"][why] = "甲 {tiny} 乙 {ratio} 丙 {big:.1e}: $L$ $c^L = e^{L \\log c}$ $L \\log c$。"
    text = claims_page(found, languages=tables, code={}, about={})
    data = json.loads(re.search(r'id="leadline-data">(.*?)</script>', text, re.S)[1])
    (shown,) = [line for line in data["tables"]["zh"] if line.startswith("甲")]
    assert "乙 0.727 丙 1.2\u202f×\u202f10<sup>12</sup>" in shown


def test_every_phrase_of_the_list_is_used() -> None:
    found = rulings()
    tables = languages(found)
    phrases = page_words()
    for at, phrase in enumerate(phrases):
        tables["zh"][phrase] += f"<{at}>"
    text = claims_page(
        found,
        languages=tables,
        code={},
        about=dict.fromkeys(
            ("seeds", "date", "from", "to", "seconds", "versions", "machine", "file"), "x"
        ),
    )
    data = json.loads(re.search(r'id="leadline-data">(.*?)</script>', text, re.S)[1])
    every = "\n".join(data["tables"]["zh"])
    assert [phrase for at, phrase in enumerate(phrases) if f"&lt;{at}&gt;" not in every] == []
