"""A claim as a card: its verdict and numbers as the ledger gives them now, in a language."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from leadline.claims.ledger import default_ledger
from leadline.claims.page.article import kind_of
from leadline.claims.page.phrases import RIGHT
from leadline.claims.page.words import number
from leadline.claims.translations import words
from leadline.web.lessons.markup import pieces

if TYPE_CHECKING:
    from leadline.claims.ruling import Checked, Ruling

__all__ = ["card", "ruling_of"]


CORRECTED = "The corrected statement"
"""What stands above a correction where the page of claims has no phrase for the verdict."""


@cache
def ruling_of(name: str) -> Ruling:
    """What the ledger of this version says about a claim."""
    return default_ledger(None).ruling(name)


def card(name: str, language: str) -> dict[str, Any]:
    """The claim as JSON: what is said, the verdict, what is right, and the numbers behind it."""
    ruling = ruling_of(name)
    claim = ruling.claim
    table = _words(language)

    def shown(text: str) -> list[dict[str, Any]]:
        return pieces(ruling.text(_in_language(text, table)))

    return {
        "claim": name,
        "title": shown(claim.title),
        "says": shown(claim.says),
        "verdict": kind_of(ruling.verdict),
        "verdict_words": _in_language(ruling.verdict, table),
        "correction": shown(claim.correction) if claim.correction else [],
        "correction_words": _in_language(RIGHT.get(ruling.verdict, CORRECTED), table),
        "why": shown(claim.why),
        "numbers": [_number(one, table, shown(one.check.label)) for one in ruling.checked],
        "address": f"#/claims?claim={name}",
    }


def _number(
    checked: Checked, table: Mapping[str, str], label: list[dict[str, Any]]
) -> dict[str, Any]:
    check = checked.check
    limit = number(check.limit)
    if check.within:
        limit += f" ± {number(check.within)}"
    return {
        "label": label,
        "part": check.part,
        "mean": number(checked.mean),
        "limit": f"{_in_language(check.relation, table)} {limit}",
        "outcome": checked.outcome,
        "outcome_words": _in_language(checked.outcome, table),
    }


def _in_language(text: str, table: Mapping[str, str]) -> str:
    """The text in the language of the table; what has no words, such as a label "1/σ", stays."""
    return table.get(text, text)


@cache
def _words(language: str) -> Mapping[str, str]:
    return {} if language == "en" else words(language)
