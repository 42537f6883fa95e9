"""A lesson: a title, the answer first, and parts in order.

Every part has a kind, a name that is its address in the lesson, texts that are translated, and
facts that are the same in every language:

    kind      texts                          facts
    text      heading, body                  -
    formula   words                          latex
    figure    heading, labels, try, see      base, other, knobs, curves, checks
    claim     lead                           claim
    question  question, answer               -

A figure is a small playground: the design `base`, a second one beside it if there is an `other`,
each as what differs from the default design, the knobs that may be turned, and the curves that
are drawn. Its `checks` say as numbers what its caption says in words; a test measures the designs
and holds the caption to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "CURVES",
    "KINDS",
    "KNOBS",
    "LANGUAGES",
    "READS",
    "SIDES",
    "Lesson",
    "LessonNumber",
    "LessonPart",
    "PartKind",
]

LANGUAGES = ("en", "zh", "ru")
"""The languages of the lessons; the first is the one that the others are made from."""

CURVES = (
    "stream.norm",
    "gradient.stream",
    "tokens.cosine",
    "tokens.relative_residual",
    "update.ratio",
    "attention.spectral_norm",
    "jacobian.distance",
)
"""What a figure can draw over depth."""

KNOBS = (
    "connection",
    "placement",
    "norm",
    "init",
    "mask",
    "mlp",
    "positions",
    "depth",
    "width",
    "heads",
    "gain",
    "text",
    "seed",
)
"""The fields of a design."""

SIDES = ("base", "other")
READS = (
    "first",
    "last",
    "least",
    "largest",
    "first over last",
    "last over first",
    "largest over least",
    "log10 last",
)
"""How one number is read from a curve. The logarithm is taken where floats end."""


@dataclass(frozen=True)
class PartKind:
    """Which texts and facts a part of one kind has; those of the second tuples may be absent."""

    texts: tuple[str, ...]
    facts: tuple[str, ...] = ()
    texts_if_any: tuple[str, ...] = ()
    facts_if_any: tuple[str, ...] = ()


KINDS = {
    "text": PartKind(("body",), texts_if_any=("heading",)),
    "formula": PartKind(("words",), ("latex",)),
    "figure": PartKind(
        ("heading", "base_label", "try", "see"),
        ("base", "knobs", "curves", "checks"),
        texts_if_any=("other_label",),
        facts_if_any=("other",),
    ),
    "claim": PartKind(("lead",), ("claim",)),
    "question": PartKind(("question", "answer")),
}


@dataclass(frozen=True)
class LessonPart:
    """One part of a lesson."""

    kind: str
    name: str
    texts: Mapping[str, str]
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class LessonNumber:
    """A number that stands in the texts as {name}.

    Either the ledger of claims has it, or a figure of the lesson gives it; then its value is
    written down, and a test measures it again.
    """

    name: str
    claim: str = ""
    number: str = ""
    figure: str = ""
    side: str = "base"
    turned: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The knobs that are turned before the figure is read."""
    curve: str = ""
    read: str = ""
    value: float = 0.0
    within: float = 0.0
    """By what share of the value the measured number may differ from it."""
    digits: int = 3
    decimals: int = -1
    """How many digits stand behind the point, where that is fixed."""


@dataclass(frozen=True)
class Lesson:
    """A lesson in one language."""

    id: str
    language: str
    title: str
    answer: str
    parts: tuple[LessonPart, ...]
    numbers: Mapping[str, LessonNumber]

    def strings(self) -> Iterator[tuple[str, str]]:
        """Every text by its key: title, answer, then part.key."""
        yield "title", self.title
        yield "answer", self.answer
        for part in self.parts:
            for key, text in part.texts.items():
                yield f"{part.name}.{key}", text

    def part(self, name: str) -> LessonPart:
        """The part of this name."""
        return next(part for part in self.parts if part.name == name)
