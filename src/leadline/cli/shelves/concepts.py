"""The vocabulary that `leadline explain` knows besides what catalogs hold: nouns and illnesses.

The nouns are those of docs/concepts.md, word for word; a test holds the two together.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources

__all__ = ["Concept", "concept_key", "read_concepts"]


@dataclass(frozen=True, slots=True)
class Concept:
    """One noun: what it is, more about it, and what to look at."""

    summary: str
    text: str = ""
    rules: tuple[str, ...] = ()
    see: tuple[str, ...] = ()

    def in_full(self) -> str:
        """What it is, as a sentence, and more about it."""
        sentence = f"{self.summary[:1].upper()}{self.summary[1:]}."
        return f"{sentence} {self.text}" if self.text else sentence

    def facts(self) -> dict[str, str]:
        """What to look at, by kind."""
        facts = {"rules": ", ".join(self.rules), "see": ", ".join(self.see)}
        return {key: text for key, text in facts.items() if text}


def concept_key(name: str) -> str:
    """The name as it is looked up: `Rank collapse` is `rank-collapse`."""
    return "-".join(name.lower().split())


def read_concepts() -> dict[str, Concept]:
    """Read the file of the vocabulary."""
    text = resources.files("leadline.cli.shelves").joinpath("concepts.toml").read_text("utf-8")
    return {
        concept_key(name): Concept(
            entry["is"],
            entry.get("text", ""),
            tuple(entry.get("rules", ())),
            tuple(entry.get("see", ())),
        )
        for name, entry in tomllib.loads(text).items()
    }
