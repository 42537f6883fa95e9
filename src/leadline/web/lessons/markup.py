"""Texts of a lesson as pieces that a page can show without reading any HTML from a text.

Paragraphs are separated by empty lines, items of a list begin with "- ". Inside stand formulas
between dollar signs, **terms** and `code`. A formula is MathML of our own making, or None where
the library that makes it is not installed; the page then shows the LaTeX.
"""

from __future__ import annotations

import re
from typing import Any

from leadline.claims.page.words import spelled
from leadline.errors import MissingExtra
from leadline.reading.show.formulas import mathml

__all__ = ["blocks", "formula", "pieces"]

_TOKEN = re.compile(r"(\$[^$]*\$|\*\*[^*]+\*\*|`[^`]+`)")
_ITEM = "- "


def blocks(text: str) -> list[dict[str, Any]]:
    """The paragraphs and lists of a text."""
    written: list[dict[str, Any]] = []
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        if paragraph.lstrip().startswith(_ITEM):
            items = re.split(r"(?m)^\s*- ", paragraph)[1:]
            written.append({"kind": "list", "items": [pieces(item) for item in items]})
        else:
            written.append({"kind": "paragraph", "pieces": pieces(paragraph)})
    return written


def pieces(text: str) -> list[dict[str, Any]]:
    """The pieces of one line of text."""
    written: list[dict[str, Any]] = []
    for token in _TOKEN.split(" ".join(text.split())):
        if not token:
            continue
        if token.startswith("$"):
            written.append(formula(token[1:-1]))
        elif token.startswith("**"):
            written.append({"strong": token[2:-2]})
        elif token.startswith("`"):
            written.append({"code": token[1:-1]})
        else:
            written.append({"text": spelled(token)})
    return written


def formula(latex: str, *, display: bool = False) -> dict[str, Any]:
    """A formula as MathML, and as LaTeX for those who read or copy it."""
    try:
        math = mathml(latex, display=display)
    except MissingExtra:
        math = None
    return {"math": math, "latex": latex}
