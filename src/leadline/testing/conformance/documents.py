"""What a part says of itself: one line for `leadline list`, a page for `leadline explain`."""

from __future__ import annotations

import inspect
import re

from leadline.testing.conformance._case import PartCase
from leadline.testing.conformance._check import Question, require

__all__ = ["questions"]

LONGEST = 100
"""Characters of the line that `leadline list` shows."""
SOURCE = re.compile(
    r"\b(19|20)\d\d\b|arXiv|https?://|\bas in\b|\bmodels of\b|\bno paper\b|\bfor comparison\b",
    re.IGNORECASE,
)
"""A year, an address, a model that has it, or a statement that there is no source."""
FORMULA = re.compile(r"^ {4,}\S.*=", re.MULTILINE)


def questions(case: PartCase) -> list[Question]:
    """The check of the docstrings."""
    return [("documents", lambda: _documents(case))]


def _documents(case: PartCase) -> str:
    docstring = inspect.cleandoc(case.entry.__doc__ or "")
    require(bool(docstring), "it has no docstring; write one line that says what it does")
    line = docstring.partition("\n")[0]
    require(line.endswith("."), f"the docstring begins with {line!r}, which is not a full sentence")
    require(len(line) <= LONGEST, f"the first line has {len(line)} characters, over {LONGEST}")
    # Not cleaned: where every line but the first is indented, the formula would lose its indent.
    page = getattr(inspect.getmodule(case.entry), "__doc__", None) or ""
    require(bool(page), "its file has no docstring; write formula, source, constants, cost")
    if case.kind in ("connection", "placement"):
        require(
            FORMULA.search(page) is not None,
            "the docstring of its file has no formula: an indented line such as x' = x + u",
        )
        require(
            SOURCE.search(page) is not None,
            "the docstring of its file names no source: authors and year, a model that has it, or 'No paper.'",
        )
    return line
