"""The page's words in the languages of the notes.

A folder per language holds one file per group of claims, with the keys of the English texts:

    [power-of-nine-tenths]
    of = "5f1c0a92"             the English that it was made from, as a digest
    title = "..."
    why = "..."
    checks.claim.vanishing = "..."

and `page.toml` with the words of the page itself, of pictures and formulas, by their English. When
the English of a claim changes, its digest does, and the page is not made before somebody has looked
at the translation again.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from leadline.claims.catalog import CLAIMS
from leadline.claims.claim import Claim
from leadline.errors import CatalogError

__all__ = ["LANGUAGES", "english_digest", "translated", "words"]

LANGUAGES = ("zh", "ru")
_FOLDER = Path(__file__).parent / "languages"
_SENTENCES = ("title", "says", "correction", "why")


def words(language: str) -> dict[str, str]:
    """Return every sentence of the page in one language, by its English."""
    folder = _FOLDER / language
    table = _read(folder / "page.toml")
    for path in sorted(folder.glob("*.toml")):
        if path.stem != "page":
            for name, texts in _read(path).items():
                table |= _new(table, translated(CLAIMS.get(name).claim, texts, path), path)
    return table


def translated(claim: Claim, texts: Mapping[str, Any], path: Path) -> dict[str, str]:
    """Return the translations of a claim's texts by their English; every one must be there."""
    if texts.get("of") != english_digest(claim):
        raise CatalogError(
            f"{path}, {claim.name}: the translation was made from another English text. Look at "
            f'it again, then write of = "{english_digest(claim)}".'
        )
    table: dict[str, str] = {}
    for key, english in _keyed(claim):
        text: Any = texts
        for part in key.split("."):
            text = text.get(part) if isinstance(text, Mapping) else None
        if not isinstance(text, str) or not text:
            raise CatalogError(
                f"{path}, {claim.name}.{key}: the translation of {english!r} is missing."
            )
        table[english] = " ".join(text.split()) if "\n" in text else text
    return table


def english_digest(claim: Claim) -> str:
    """Return a short digest of everything about a claim that is translated."""
    texts = "\n".join(f"{key}={english}" for key, english in _keyed(claim))
    return hashlib.sha256(texts.encode()).hexdigest()[:8]


def _keyed(claim: Claim) -> Iterator[tuple[str, str]]:
    for name in _SENTENCES:
        if text := getattr(claim, name):
            yield name, text
    for check in claim.checks:
        yield f"checks.{check.part}.{check.number}", check.label


def _new(known: Mapping[str, str], more: dict[str, str], path: Path) -> dict[str, str]:
    """Return what is added, or refuse one English sentence with two translations."""
    for english, text in more.items():
        if known.get(english, text) != text:
            raise CatalogError(
                f"{path}: {english!r} is translated as {text!r} here and as {known[english]!r} "
                "elsewhere; use one of them."
            )
    return more


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CatalogError(f"The translation {path} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CatalogError(f"{path} is not valid TOML: {error}.") from error
