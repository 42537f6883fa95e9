"""The page's words in the languages of the notes: English sentence to translated sentence."""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["LANGUAGES", "words"]

LANGUAGES = ("zh", "ru")
_FOLDER = Path(__file__).parent / "languages"


def words(language: str) -> dict[str, str]:
    """Every sentence of the page in one language, by its English."""
    return json.loads((_FOLDER / f"{language}.json").read_text(encoding="utf-8"))
