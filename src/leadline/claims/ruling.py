"""From numbers to a verdict, by rules that are the same for every claim.

A check over every seed holds where all numbers pass and fails where one does not. A check over
the mean compares the interval

    mean +- t(n - 1) s / sqrt(n)        t: the 97.5 % point of Student's distribution

with the limit: it holds where the whole interval passes, fails where none of it does, and is
undecided otherwise; one seed has no interval. A number that is not finite fails a check of either
kind. The verdict:

    some check of the claim fails                 false as stated
    else some check of it is undecided            undecided
    else some check of its reach fails            holds under conditions
    else some check of its reach is undecided     undecided
    else                                          holds

and, beside it, whether the corrected statement holds. A claim without checks is not checkable
here. Nothing else enters: no entry of the catalog can say its own verdict.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from leadline.claims.claim import FORMULA, PLACE, Check, Claim, Picture
from leadline.record.provenance import strict_number
from leadline.record.words.numbers import format_number

__all__ = ["VERDICTS", "Checked", "Ruling", "filled", "judge", "rule", "student"]

HOLDS, CONDITIONS, FALSE = "holds", "holds under conditions", "false as stated"
UNDECIDED, UNCHECKABLE, UNMEASURED = "undecided", "not checkable here", "not measured"
VERDICTS = (HOLDS, CONDITIONS, FALSE, UNCHECKABLE, UNDECIDED, UNMEASURED)

_STUDENT = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
)  # fmt: skip
"""The 97.5 % points of Student's distribution with 1 to 20 degrees of freedom."""
_NORMAL = 1.95996


def student(freedom: int) -> float:
    """The 97.5 % point of Student's distribution."""
    if freedom <= len(_STUDENT):
        return _STUDENT[freedom - 1]
    z = _NORMAL  # the first terms of the expansion in 1 / freedom
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


@dataclass(frozen=True)
class Checked:
    """A check with its numbers and what came of it."""

    check: Check
    values: tuple[float, ...]
    outcome: str
    """"holds", "fails" or "undecided"."""

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return float(np.mean(self.values))

    @property
    def lower(self) -> float:
        """The lower end of what is known: of the t interval, or of the numbers."""
        return self._ends[0]

    @property
    def upper(self) -> float:
        """The upper end."""
        return self._ends[1]

    @property
    def _ends(self) -> tuple[float, float]:
        every = self.check.over == "every" or len(self.values) < 2
        if every or not all(map(math.isfinite, self.values)):
            return min(self.values), max(self.values)
        half = _half(self.values)
        return self.mean - half, self.mean + half

    def to_json(self) -> dict[str, Any]:
        """Return the check as JSON."""
        check = self.check
        return {
            "name": check.number,
            "part": check.part,
            "label": check.label,
            "values": [strict_number(value) for value in self.values],
            "mean": strict_number(self.mean),
            "lower": strict_number(self.lower),
            "upper": strict_number(self.upper),
            "over": check.over,
            "relation": check.relation,
            "limit": check.limit,
            **({"within": check.within} if check.within else {}),
            "because": check.because,
            "outcome": self.outcome,
        }


@dataclass(frozen=True)
class Ruling:
    """What the numbers say about a claim."""

    claim: Claim
    verdict: str
    correction: str | None
    """Whether the corrected statement holds; None where nothing is checked of it."""
    checked: tuple[Checked, ...] = ()
    numbers: Mapping[str, tuple[float, ...]] | None = None
    """Every measured number by seed, those that no check uses among them."""
    pictures: tuple[Picture, ...] = ()
    """The claim's own curves, one per seed."""
    seeds: tuple[int, ...] = ()
    seconds: float = 0.0
    """What measuring it took, all seeds together."""

    def text(self, template: str) -> str:
        """A text of the claim with its numbers filled in."""
        return filled(template, self.numbers or {})

    def to_json(self) -> dict[str, Any]:
        """Return the ruling as JSON: id, note, verdict, numbers."""
        claim = self.claim
        return {
            "id": claim.name,
            "group": claim.group,
            "notes": list(claim.notes),
            "title": claim.title,
            "formula": claim.formula,
            "claim": self.text(claim.says),
            "verdict": self.verdict,
            "correction": self.text(claim.correction) or None,
            "correction_outcome": self.correction,
            "why": self.text(claim.why),
            "source": claim.source or None,
            "seeds": list(self.seeds),
            "seconds": strict_number(round(self.seconds, 3)),
            "checks": [one.to_json() for one in self.checked],
            "numbers": {
                name: [strict_number(value) for value in values]
                for name, values in (self.numbers or {}).items()
            },
        }


def judge(check: Check, values: Sequence[float]) -> Checked:
    """Set the numbers of all seeds beside the limit."""
    found = tuple(float(value) for value in values)
    if any(not math.isfinite(value) for value in found):
        # An overflow to the allowed side is what "at least" asks for; anything else is none.
        outcome = "holds" if all(check.allows(value) for value in found) else "fails"
    elif check.over == "every":
        outcome = "holds" if all(check.allows(value) for value in found) else "fails"
    elif len(found) < 2:
        outcome = "undecided"
    else:
        mean, half = float(np.mean(found)), _half(found)
        if check.allows(mean - half) and check.allows(mean + half):
            outcome = "holds"
        elif mean + half < check.lower or mean - half > check.upper:
            outcome = "fails"
        else:
            outcome = "undecided"
    return Checked(check, found, outcome)


def rule(
    claim: Claim,
    numbers: Mapping[str, Sequence[float]],
    *,
    pictures: Sequence[Picture] = (),
    seeds: Sequence[int] = (),
    seconds: float = 0.0,
) -> Ruling:
    """The verdict that follows from the numbers of all seeds, by name."""
    if not claim.checkable:
        return Ruling(claim, UNCHECKABLE, None)
    if not numbers:
        return Ruling(claim, UNMEASURED, None)
    checked = tuple(judge(check, numbers[check.number]) for check in claim.checks)
    return Ruling(
        claim,
        verdict_of(checked),
        _worst([one.outcome for one in checked if one.check.part == "correction"]),
        checked,
        {name: tuple(float(v) for v in values) for name, values in numbers.items()},
        tuple(pictures),
        tuple(seeds),
        seconds,
    )


def verdict_of(checked: Sequence[Checked]) -> str:
    """The rule of the module's first lines."""
    said = _worst([one.outcome for one in checked if one.check.part == "claim"])
    reach = _worst([one.outcome for one in checked if one.check.part == "reach"])
    if said == "fails":
        return FALSE
    if said == "undecided":
        return UNDECIDED
    if reach == "fails":
        return CONDITIONS
    return UNDECIDED if reach == "undecided" else HOLDS


def filled(template: str, numbers: Mapping[str, Sequence[float]]) -> str:
    """A text with the means of its numbers; formulas between dollar signs are left alone."""

    def number(found: re.Match[str]) -> str:
        values = numbers.get(found[1])
        if values is None:
            return "…"
        mean = float(np.mean(values))
        return format(mean, found[2]) if found[2] else format_number(mean, digits=3)

    return "".join(
        part if part.startswith("$") else PLACE.sub(number, part)
        for part in FORMULA.split(template)
    )


def _half(values: Sequence[float]) -> float:
    spread = float(np.std(values, ddof=1))
    return student(len(values) - 1) * spread / math.sqrt(len(values))


def _worst(outcomes: Sequence[str]) -> str | None:
    for outcome in ("fails", "undecided", "holds"):
        if outcome in outcomes:
            return outcome
    return None
