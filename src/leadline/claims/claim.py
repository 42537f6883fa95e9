"""A claim: what a note says, and the checks by which numbers rule on it.

A check sets one measured number beside a limit. It belongs to one of three parts:

    claim        what the note says, in the setting that the note itself names or plainly means
    reach        the same sentence where a reader would carry it: other masks, depths, scalings
    correction   the corrected statement, which must hold whatever becomes of the claim

How the verdict follows from the checks stands in `leadline.claims.ruling`. Texts are templates:
`{name}` stands for the measured number `name` (its mean over the seeds), `{name:.2f}` for the same
in Python's format. Formulas stand in texts between two dollar signs, as LaTeX.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, SupportsFloat

from leadline.errors import CatalogError
from leadline.record.provenance import strict_json

__all__ = ["GROUPS", "NOTES", "Check", "Claim", "Note", "Picture", "placeholders"]

GROUPS = {
    "algebra": "Residual algebra",
    "norms": "Norms",
    "attention": "Attention",
    "collapse": "Rank collapse",
    "training": "Training",
}
"""The chapters of the catalog."""

PARTS = ("claim", "reach", "correction")
RELATIONS = ("at most", "at least", "near")
OVER = ("every", "mean")
PLACE = re.compile(r"\{([a-z][a-z0-9_]*)(?::([^{}]*))?\}")
FORMULA = re.compile(r"(\$[^$]*\$)")


@dataclass(frozen=True)
class Note:
    """One of the five notes that the claims come from."""

    name: str
    about: str
    language: str


NOTES = {
    "shortcuts": Note("shortcuts", "a talk on shortcut connections, Pre-LN and Post-LN", "Chinese"),
    "summary": Note("summary", "a short summary of residual connections", "Russian"),
    "textbook": Note("textbook", "a long explanation of shortcut connections", "English"),
    "card": Note("card", "a learning card on residual connections, with an exercise", "English"),
    "deep-dive": Note("deep-dive", "GPT-2, attention spectra and rank collapse", "Chinese"),
}


@dataclass(frozen=True)
class Check:
    """One number beside its limit.

    `over` says how seeds count: "every" for what must hold in each of them (identities, bounds,
    counterexamples), "mean" for a statement about the mean over seeds, judged by its t interval.
    """

    number: str
    part: str
    relation: str
    limit: float
    label: str
    """What the number is, in a few words, for pictures and tables."""
    because: str
    """Why this limit: a theorem, rounding, or the noise over seeds."""
    over: str = "every"
    within: float = 0.0
    """How far from the limit a number that is to be near it may lie."""
    log: bool = False
    """Whether the picture shows the number on a logarithmic axis."""

    def __post_init__(self) -> None:
        for name, value, known in (
            ("part", self.part, PARTS),
            ("relation", self.relation, RELATIONS),
            ("over", self.over, OVER),
        ):
            if value not in known:
                raise CatalogError(f"A check has no {name} {value!r}; known: {', '.join(known)}.")
        if (self.within > 0) != (self.relation == "near"):
            raise CatalogError(
                f"The check of {self.number!r} is {self.relation!r} its limit within "
                f"{self.within}; a distance above 0 belongs to 'near', and to it alone."
            )
        if not math.isfinite(self.limit):
            raise CatalogError(f"The check of {self.number!r} has the limit {self.limit}.")
        if len(self.because) < 10:
            raise CatalogError(f"The check of {self.number!r} does not say why its limit is that.")

    @property
    def lower(self) -> float:
        """The least number that passes."""
        if self.relation == "near":
            return self.limit - self.within
        return self.limit if self.relation == "at least" else -math.inf

    @property
    def upper(self) -> float:
        """The largest number that passes."""
        if self.relation == "near":
            return self.limit + self.within
        return self.limit if self.relation == "at most" else math.inf

    def allows(self, value: float) -> bool:
        """Whether one number passes; NaN never does."""
        return self.lower <= value <= self.upper


@dataclass(frozen=True, init=False)
class Picture:
    """Curves that belong to a claim: y over x by name. Points without lines where `points`."""

    x_label: str
    y_label: str
    lines: Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]]
    x_log: bool
    y_log: bool
    points: bool
    equal: bool
    """Whether both axes have the same unit, as in a geometric picture."""
    faint: tuple[str, ...]
    """Lines that are theory or comparison: drawn dashed."""

    def __init__(
        self,
        x_label: str,
        y_label: str,
        lines: Mapping[str, Any],
        x_log: bool = False,
        y_log: bool = False,
        points: bool = False,
        equal: bool = False,
        faint: Iterable[str] = (),
        over: Iterable[SupportsFloat] | int | None = None,
    ) -> None:
        """Keep x and y of every line, of whatever numbers they are.

        With `over` a line is its y alone: over these places, as far as it goes, or over the whole
        numbers from this one on. One number is then a level line over all places.
        """
        pairs = lines if over is None else _placed(lines, over)
        fields = {
            "x_label": x_label,
            "y_label": y_label,
            "lines": {name: (_floats(x), _floats(y)) for name, (x, y) in pairs.items()},
            "x_log": x_log,
            "y_log": y_log,
            "points": points,
            "equal": equal,
            "faint": tuple(faint),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def to_json(self) -> dict[str, Any]:
        """Return the picture as JSON."""
        lines = {name: [list(x), list(y)] for name, (x, y) in self.lines.items()}
        return strict_json({**vars(self), "lines": lines, "faint": list(self.faint)})

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Picture:
        """Read what `to_json` wrote."""
        return cls(**found)


def _floats(values: Iterable[SupportsFloat | None]) -> tuple[float, ...]:
    """The values as floats; null, which is how JSON keeps NaN, is NaN again."""
    return tuple(math.nan if value is None else float(value) for value in values)


def _placed(
    lines: Mapping[str, Any], over: Iterable[SupportsFloat] | int
) -> dict[str, tuple[Sequence[SupportsFloat], Sequence[SupportsFloat]]]:
    """Give every line its places."""
    curves = {name: y if isinstance(y, int | float) else _floats(y) for name, y in lines.items()}
    longest = max(len(y) for y in curves.values() if isinstance(y, tuple))
    places = range(over, over + longest) if isinstance(over, int) else _floats(over)
    return {
        name: (places[: len(y)], y) if isinstance(y, tuple) else (places, (y,) * len(places))
        for name, y in curves.items()
    }


@dataclass(frozen=True)
class Claim:
    """One statement of the notes, in our words."""

    name: str
    group: str
    notes: tuple[str, ...]
    title: str
    """The claim in one short sentence."""
    formula: str
    """The claim as LaTeX; "" where it has no formula."""
    plain: str
    """The claim as a formula in plain characters, for a terminal."""
    says: str
    """What the note says, in our words."""
    correction: str
    """The statement that is right; "" where the claim holds as it stands."""
    why: str
    """A short explanation for learners."""
    checks: tuple[Check, ...] = ()
    source: str = ""
    """Where the right statement is proved or was published."""

    def __post_init__(self) -> None:
        if self.group not in GROUPS:
            raise CatalogError(f"The claim {self.name!r} is in no group {self.group!r}.")
        for note in self.notes:
            if note not in NOTES:
                raise CatalogError(f"The claim {self.name!r} comes from no note {note!r}.")
        known = {(check.part, check.number) for check in self.checks}
        if len(known) < len(self.checks):
            raise CatalogError(f"The claim {self.name!r} checks a number twice in one part.")
        if self.checks and not any(check.part == "claim" for check in self.checks):
            raise CatalogError(f"The claim {self.name!r} has no check of what the note says.")

    @property
    def checkable(self) -> bool:
        """Whether anything is measured for it."""
        return bool(self.checks)

    def texts(self) -> list[str]:
        """Every sentence of the claim that a reader of the page sees."""
        found = [self.title, self.says, self.correction, self.why]
        found += [check.label for check in self.checks]
        return [text for text in found if text]


def placeholders(text: str) -> list[str]:
    """The numbers that a text asks for, with their formats: ["ratio", "slope:.2f"]."""
    words = FORMULA.sub("", text)
    return [f"{m[1]}:{m[2]}" if m[2] else m[1] for m in PLACE.finditer(words)]
