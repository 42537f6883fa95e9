"""What a diagnosis of a faulty model has to say: accepted causes and the place."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Answer"]


@dataclass(frozen=True)
class Answer:
    """The causes that are right, by the names of their rules, and the place where there is one."""

    causes: frozenset[str]
    stack: str | None = None
    layers: tuple[int, ...] = ()
    sublayer: str | None = None
    parameter: str | None = None
