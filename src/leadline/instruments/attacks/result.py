"""What a search for violations found, as data: one row per bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from leadline.record.provenance import strict_json, strict_number
from leadline.record.words.screen import Screen, Showable

__all__ = ["ROUNDING", "AttackRow", "AttackTable", "Verdict"]

Verdict = Literal["held", "VIOLATED", "refuted", "not met"]

ROUNDING = 1e-9
"""How far above 1 a ratio may lie by rounding."""


@dataclass(frozen=True, slots=True)
class AttackRow:
    """One bound under attack.

    A ratio is measured / predicted for an upper bound and its inverse for a lower one: above 1 the
    bound fails. `ratio` is the largest where its assumptions hold. `outside_ratio` is the worst
    where some do not (a violation with fewer failing assumptions is the worse one), and `because`
    says which fail there. `facts` holds the numbers of a violation.
    """

    name: str
    title: str
    statement: str
    source: str
    random: int
    optimised: int
    ratio: float
    outside: int = 0
    """How many attacks met it where some assumption fails."""
    outside_ratio: float = 0.0
    because: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def attacks(self) -> int:
        """How many attacks met it where its assumptions hold."""
        return self.random + self.optimised

    @property
    def violated(self) -> bool:
        """Whether it fails where its assumptions hold."""
        return not self.ratio <= 1.0 + ROUNDING

    @property
    def fails_outside(self) -> bool:
        """Whether it fails somewhere where an assumption fails."""
        return self.outside_ratio > 1.0 + ROUNDING

    @property
    def verdict(self) -> Verdict:
        """The outcome in one word.

        refuted: no attack met all its assumptions, and one that misses a single assumption violates
        it. not met: no attack met all its assumptions, and nothing more is known.
        """
        if self.violated:
            return "VIOLATED"
        if self.attacks:
            return "held"
        return "refuted" if self.fails_outside and len(self.because) == 1 else "not met"

    def to_json(self) -> dict[str, Any]:
        """Return the row as strict JSON."""
        return {
            "name": self.name,
            "title": self.title,
            "statement": self.statement,
            "source": self.source,
            "attacks": {"random": self.random, "optimised": self.optimised},
            "ratio": strict_number(self.ratio) if self.attacks else None,
            "verdict": self.verdict,
            "violated": self.violated,
            "outside": {
                "attacks": self.outside,
                "ratio": strict_number(self.outside_ratio) if self.outside else None,
                "because": list(self.because),
            },
            "facts": strict_json(dict(self.facts)) if self.violated else None,
        }


@dataclass(frozen=True, slots=True)
class AttackTable(Showable):
    """All bounds that were attacked: the violated ones first, then in the order of their names.

    `asked_random` and `asked_optimised` are how many attacks each bound was to meet; `drawn` and
    `climbed` how many matrices and networks were drawn, and how many paths climbed, for all bounds
    together. `laws` are the asymptotic statements, which are not attacked.
    """

    rows: tuple[AttackRow, ...]
    asked_random: int
    asked_optimised: int
    drawn: int
    climbed: int
    seed: int
    laws: tuple[str, ...] = ()

    @property
    def violated(self) -> bool:
        """Whether any bound fails where its assumptions hold."""
        return any(row.violated for row in self.rows)

    def screen(self, *, everything: bool = True) -> Screen:
        """Return the answer and a row per bound; without `everything` those that came nearest."""
        from leadline.instruments.attacks.text import attacks_screen

        return attacks_screen(self, everything=everything)

    def to_json(self) -> dict[str, Any]:
        """Return the table as strict JSON: NaN is null, infinities are strings."""
        return {
            "schema": 1,
            "violated": self.violated,
            "attacks": {
                "random": self.asked_random,
                "optimised": self.asked_optimised,
                "drawn": self.drawn,
                "climbed": self.climbed,
            },
            "seed": self.seed,
            "bounds": [row.to_json() for row in self.rows],
            "laws": list(self.laws),
        }
