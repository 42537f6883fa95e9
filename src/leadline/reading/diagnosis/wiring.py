"""Which matrices that meet do not know each other (fact `wiring`), and what was tried (fact `trials`).

Between strangers the likeness of n entries is 0 with a deviation of 1 / sqrt(n). Seen before the limits
were set, in six well trained models of six layers: 0.72 to 0.99 where matrices belong together; at most
0.19 (3 deviations) between those of different layers, and -0.23 to 0.14 with a redrawn one. The MLPs
of two models that were trained briefly had 0.59 to 0.77, their attention -0.11 to 0.40: no line of layers
that is as weak as that tells anything.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from leadline.reading.diagnosis.case import Case

__all__ = [
    "LEAST",
    "MatrixPair",
    "Parted",
    "all_parted",
    "meetings",
    "parted_pairs",
    "strangers",
    "trial",
    "true_partner",
]

STRANGE = 5.0
"""Below so many deviations two matrices are strangers."""
KIN = 8.0
"""Above so many they are not."""
SURE = 0.5
"""Queries and keys of two briefly trained models had -0.43 to -0.13 in their first layers and 0.31 to
0.77 in the others."""
SLIGHT = 0.98
CLEAR = 0.7
"""Limits of `trial`, which says what was seen."""
FAR = 0.3
"""A stranger is less than this share as alike as the least of the others."""
LEAST = 0.3
"""In large models a deviation is tiny; what training makes alike is at least this alike."""


@dataclass(frozen=True)
class MatrixPair:
    """Two matrices of one layer that meet: kind (values, queries or mlp), names, likeness."""

    kind: str
    stack: str
    layer: int
    first: str
    second: str
    likeness: float
    entries: int
    facts: Mapping[str, Any]

    @property
    def strange(self) -> bool:
        """Whether the two are no more alike than strangers."""
        return abs(self.likeness) < STRANGE / math.sqrt(self.entries)

    def kin(self, likeness: float, entries: int | None = None) -> bool:
        """Whether a likeness is that of matrices that were trained together."""
        return likeness > max(LEAST, KIN / math.sqrt(entries or self.entries))


def meetings(case: Case) -> Mapping[tuple[str, str], Sequence[MatrixPair]]:
    """The meetings over depth, by stack and a name of the line."""
    return case.remember("meetings", lambda: _meetings(case))


def _meetings(case: Case) -> Mapping[tuple[str, str], Sequence[MatrixPair]]:
    lines: defaultdict[tuple[str, str], list[MatrixPair]] = defaultdict(list)
    for one in case.fact("wiring", ()):
        block = case.module(one["stack"], one["layer"])
        inside = " ".join(one[side].removeprefix(f"{block}.") for side in ("first", "second"))
        lines[one["stack"], f"{one['kind']} {inside}"].append(
            MatrixPair(
                one["kind"],
                one["stack"],
                one["layer"],
                one["first"],
                one["second"],
                one["likeness"],
                one["entries"],
                one,
            )
        )
    return lines


def strangers(line: Sequence[MatrixPair]) -> list[MatrixPair]:
    """The meetings of strangers in a line whose other layers are all kin; at most a third of them."""
    low = [one for one in line if one.strange]
    others = [one for one in line if one not in low]
    if not low or len(others) < 3 or len(low) > max(1, len(line) // 3):
        return []
    if not all(one.kin(one.likeness) and one.likeness > SURE for one in others):
        return []
    limit = FAR * min(one.likeness for one in others)
    return [one for one in low if one.likeness < limit]


Parted = list[tuple[MatrixPair, float]]
"""Strangers, each with the median likeness of the other layers."""


def parted_pairs(case: Case) -> dict[tuple[str, int], Parted]:
    """The pairs of matrices by layer that do not know each other, where those of other layers do."""
    grouped: defaultdict[tuple[str, int], Parted] = defaultdict(list)
    for line in meetings(case).values():
        low = strangers(line)
        low += [one for one in line if one not in low and one.strange and true_partner(one)]
        others = [one.likeness for one in line if one not in low]
        for one in low:
            grouped[one.stack, one.layer].append((one, median(others) if others else 1.0))
    return grouped


def true_partner(one: MatrixPair) -> str:
    """Where the second matrix of a meeting of strangers belongs, by what it is kin with."""
    nearest = one.facts.get("nearest")
    if nearest is not None and one.kin(nearest["likeness"]):
        return f"that of layer {nearest['layer']} fits"
    if one.kin(one.facts.get("transposed", 0.0)):
        return "its transpose fits"
    return ""


def all_parted(pairs: Parted) -> bool:
    """Whether attention and MLP of a layer are both strange, and nothing tells where they belong."""
    kinds = {one.kind == "mlp" for one, _ in pairs}
    return len(kinds) == 2 and not any(true_partner(one) for one, _ in pairs)


def trial(case: Case, *kinds: str) -> Mapping[str, Any] | None:
    """What was tried with the lowest loss, if it is of one of these kinds and clearly lower than as is.

    Healthy rotary models lost 0.7 to 1.2 nats with their rows in the other order; those whose rows had
    been stored so gained 3 to 34 %. Exchanged layers and a transposed matrix gained 36 to 57 % when put
    right, and were then better than counting; other trials on them gained up to 32 %.
    """
    facts: Mapping[str, Any] = case.fact("trials") or {}
    tried = [one for one in facts.get("tried", ()) if math.isfinite(one["loss"])]
    best = min(tried, key=lambda one: one["loss"], default=None)
    if best is None or best["what"] not in kinds:
        return None
    exact = best["what"] == "rotary pairs"
    limit = SLIGHT * facts["loss"] if exact else min(CLEAR * facts["loss"], facts["unigram"])
    return best if best["loss"] < limit else None
