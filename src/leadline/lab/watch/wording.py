"""Sentences about one parameter or about several."""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["said_of"]


def said_of(names: Collection[str], one: str, several: str) -> str:
    """Return the sentence for one name or for several, with `{name}`, and `{count}` of several."""
    sentence = one if len(names) == 1 else several
    return sentence.format(name=min(names), count=len(names))
