"""Formulas become MathML that a browser sets right, or an error; never a half of it."""

from __future__ import annotations

import builtins
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from leadline.errors import InputError, MissingExtra
from leadline.reading.show.formulas import mathml


def read(latex: str, **more: Any) -> ET.Element:
    return ET.fromstring(mathml(latex, **more))


def letters(element: ET.Element) -> str:
    return "".join(element.itertext())


def test_a_fraction_has_a_numerator_and_a_denominator() -> None:
    found = read(r"\frac{a + 1}{b}")
    fraction = next(found.iter("mfrac"))
    assert [letters(part) for part in fraction] == ["a+1", "b"]


def test_display_is_said_and_inline_is_not() -> None:
    assert read("x", display=True).get("display") == "block"
    assert read("x").get("display") is None


@pytest.mark.parametrize("latex", [r"\foo + 1", r"\frac{1}", "x_", r"\begin{pmatrix} a"])
def test_what_cannot_be_set_is_an_error_that_names_the_formula(latex: str) -> None:
    with pytest.raises(InputError) as error:
        mathml(latex)
    assert repr(latex) in str(error.value)


def test_signs_of_html_are_escaped() -> None:
    assert "<mo>&lt;</mo>" in mathml("a < b")


def test_an_upright_word_is_one_element() -> None:
    found = read(r"\mathrm{softmax}(x)")
    assert [mi.text for mi in found.iter("mi")] == ["softmax", "x"]
    assert all(mi.get("mathvariant") is None for mi in found.iter("mi"))


def test_a_single_upright_letter_says_that_it_is_upright() -> None:
    (letter,) = read(r"\mathrm{d}").iter("mi")
    assert letter.get("mathvariant") == "normal"


def test_bold_is_a_class_since_browsers_know_no_other_variant_than_normal() -> None:
    (one,) = read(r"\mathbf{1}").iter("mn")
    assert (one.get("class"), one.get("mathvariant")) == ("bold", "normal")


def test_a_function_keeps_its_distance_from_a_letter_but_not_from_a_bracket() -> None:
    (log,) = [mo for mo in read(r"L \log c").iter("mo") if mo.text == "log"]
    assert (log.get("lspace"), log.get("rspace")) == ("0.167em", "0.167em")
    (log,) = [mo for mo in read(r"L \log(c)").iter("mo") if mo.text == "log"]
    assert log.get("rspace") == "0"


@pytest.mark.parametrize(("latex", "sign"), [(r"a \not= b", "≠"), (r"a \not\to 0", "↛")])
def test_a_struck_sign_is_one_sign(latex: str, sign: str) -> None:
    assert [mo.text for mo in read(latex).iter("mo")] == [sign]


def test_bars_stand_close_to_what_they_enclose() -> None:
    bars = [mo for mo in read(r"|1 + x| \le 1").iter("mo") if mo.text in ("|", "∣")]
    assert [(bar.get("lspace"), bar.get("rspace")) for bar in bars] == [("0", "0")] * 2


def test_nothing_of_the_translator_is_left_that_html_does_not_need() -> None:
    text = mathml(r"\frac{x}{y}")
    assert "xmlns" not in text
    assert "&#" not in text


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("latex2mathml"):
            raise ModuleNotFoundError("gone", name="latex2mathml")
        return real(name, *rest, **more)

    monkeypatch.setattr("importlib.import_module", refuse)
    with pytest.raises(MissingExtra, match=r"leadline\[report\]"):
        mathml("x + 17 y")
