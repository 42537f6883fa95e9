"""Formulas as MathML, which browsers set without a script or a font from elsewhere.

latex2mathml translates. It passes on unchanged what it does not know, so its answer is checked
here: a command that is left over, or a fraction without a denominator, is an error.
Three things are put right for browsers that follow MathML Core: letters of an upright word stand
in one element, bold is a class (only the value "normal" of mathvariant is left there), and rows
of one element go.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
import xml.etree.ElementTree as ET
from typing import Any

from leadline.errors import InputError, require

__all__ = ["mathml"]

_PARTS = {
    "mfrac": 2, "msub": 2, "msup": 2, "msubsup": 3, "munder": 2, "mover": 2, "munderover": 3,
    "mroot": 2,
}  # fmt: skip
"""How many parts an element must have."""
_BOLD = ("bold", "bold-italic")
_INDENT = re.compile(r"\s+")
_FUNCTIONS = frozenset(
    [
        "log",
        "ln",
        "lg",
        "exp",
        "sin",
        "cos",
        "tan",
        "tanh",
        "cosh",
        "sinh",
        "max",
        "min",
        "sup",
        "inf",
        "lim",
        "det",
        "dim",
        "rank",
    ]
)
_UPRIGHT = re.compile(r"<mi>(&#x000[4-7][0-9A-F];)</mi>")
"""How a single upright letter comes out, without saying so: as the number of the letter."""
_NAMESPACE = ' xmlns="http://www.w3.org/1998/Math/MathML"'
_SPACE = "0.167em"
_STRUCK, _STROKE = "⧸", "\u0338"
"""What stands before a sign that is struck out, and what strikes it out in Unicode."""
_BARS = ("|", "∣", "‖", "∥")


@functools.cache
def mathml(latex: str, *, display: bool = False) -> str:
    """Return the formula as a `math` element, on a line of its own where `display`."""
    converter: Any = require("latex2mathml.converter", extra="report")
    try:
        text: str = converter.convert(latex, display="block" if display else "inline")
        text = _UPRIGHT.sub(r'<mi mathvariant="normal">\1</mi>', text.replace(_NAMESPACE, ""))
        tree = ET.fromstring(text)  # noqa: S314
    except Exception as error:
        raise InputError(
            f"The formula {latex!r} cannot be converted to MathML ({error}); use simpler LaTeX."
        ) from error
    _check(tree, latex)
    _tidy(tree)
    if not display:
        tree.attrib.pop("display", None)
    return ET.tostring(tree, encoding="unicode", short_empty_elements=False)


def _check(tree: ET.Element, latex: str) -> None:
    for element in tree.iter():
        if "\\" in (element.text or ""):
            raise InputError(
                f"The formula {latex!r} has the unknown command {element.text!r}; use plain LaTeX."
            )
        expected = _PARTS.get(element.tag)
        if expected is not None and len(element) != expected:
            raise InputError(
                f"The formula {latex!r} has a {element.tag} of {len(element)} parts instead of "
                f"{expected}."
            )


def _tidy(parent: ET.Element) -> None:
    for element in parent:
        _tidy(element)
    _join_words(parent)
    _join_negations(parent)
    _space_functions(parent)
    for at, element in enumerate(list(parent)):
        if element.tag == "mrow" and len(element) == 1 and not element.attrib:
            parent[at] = element[0]
    for element in parent:
        if element.get("mathvariant") in _BOLD:
            element.set("class", "bold")
            element.set("mathvariant", "normal")
        if element.text:
            element.text = _INDENT.sub(" ", element.text)


def _space_functions(parent: ET.Element) -> None:
    """Put a thin space around log and its like, except beside a bracket; none inside bars."""
    elements = list(parent)
    for at, element in enumerate(elements):
        if element.tag == "mo" and element.text in _BARS and "form" not in element.attrib:
            element.attrib.update(lspace="0", rspace="0", stretchy="false")
        if element.tag not in ("mi", "mo") or (element.text or "") not in _FUNCTIONS:
            continue
        after = (elements[at + 1].text or "").strip() if at + 1 < len(elements) else ""
        element.tag = "mo"
        element.set("lspace", _SPACE if at else "0")
        element.set("rspace", _SPACE if at + 1 < len(elements) and after not in "(|[‖" else "0")


def _join_negations(parent: ET.Element) -> None:
    """Join a stroke and the sign that it strikes out."""
    elements = list(parent)
    for stroke, struck in itertools.pairwise(elements):
        if "".join(stroke.itertext()) == _STRUCK and struck.text:
            struck.text = unicodedata.normalize("NFC", struck.text + _STROKE)
            parent.remove(stroke)


def _join_words(parent: ET.Element) -> None:
    """Join consecutive upright letters to one word."""
    before: ET.Element | None = None
    for element in list(parent):
        upright = element.tag == "mi" and element.get("mathvariant") == "normal"
        upright = upright and len(element.text or "") == 1 and (element.text or "").isalpha()
        if upright and before is not None:
            before.text = (before.text or "") + (element.text or "")
            before.attrib.pop("mathvariant", None)  # a word is upright by itself
            parent.remove(element)
        else:
            before = element if upright else None
