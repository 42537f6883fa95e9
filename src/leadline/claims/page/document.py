"""The page of claims from a ledger: rulings with the code that measured them, in every language."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from leadline.claims import CLAIMS
from leadline.claims.claim import GROUPS
from leadline.claims.digest import source_of
from leadline.claims.ledger import SHIPPED
from leadline.claims.page.page import claims_page, ruling_words
from leadline.claims.translations import LANGUAGES, words

if TYPE_CHECKING:
    from leadline.claims.catalog import Entry
    from leadline.claims.ledger import Ledger
    from leadline.claims.ruling import Ruling

__all__ = ["about", "claims_document", "in_order"]


def claims_document(rulings: Sequence[Ruling], ledger: Ledger) -> str:
    """Return the page for learners as HTML. Claims of a plug-in stay in their own language."""
    code = {
        ruling.claim.name: source_of(entry)
        for ruling in rulings
        if (entry := CLAIMS.get(ruling.claim.name)).measure is not None
    }
    languages = {language: words(language) for language in LANGUAGES}
    for ruling in rulings:
        if not _shipped(CLAIMS.get(ruling.claim.name)):
            for known in languages.values():
                for text in ruling_words(ruling):
                    known.setdefault(text, text)
    return claims_page(rulings, languages=languages, code=code, about=about(ledger, rulings))


def about(ledger: Ledger, rulings: Sequence[Ruling]) -> dict[str, Any]:
    """What a reader should know of where the numbers come from."""
    lines = [line for ruling in rulings for line in ledger.lines(ruling.claim.name)]
    versions: dict[str, set[str]] = {}
    for line in lines:
        for what, version in line.versions.items():
            versions.setdefault(what, set()).add(version)
    return {
        "file": None if ledger.path == SHIPPED else str(ledger.path),
        "seeds": sorted({line.seed for line in lines}),
        "from": min((line.time for line in lines), default=""),
        "to": max((line.time for line in lines), default=""),
        "versions": {what: sorted(found) for what, found in versions.items()},
        "seconds": round(sum(line.seconds for line in lines), 1),
    }


def in_order(names: Iterable[str]) -> list[str]:
    """The names of claims by group, in the order of the groups."""
    order = list(GROUPS)
    return sorted(names, key=lambda name: (order.index(CLAIMS.get(name).claim.group), name))


def _shipped(entry: Entry) -> bool:
    """Whether a claim comes with the package, so that its sentences are translated."""
    return entry.measure is None or entry.measure.__module__.startswith("leadline.claims.")
