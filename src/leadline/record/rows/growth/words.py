"""A law in words, long for a sentence and brief for a narrow table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from leadline.record.provenance import strict_number
from leadline.record.words.numbers import format_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from leadline.record.rows.growth.stretch import LawName, Stretch

    Vector = NDArray[np.float64]

__all__ = [
    "Growth",
    "Jump",
    "brief_factor",
    "brief_jump",
    "brief_law",
    "flat_text",
    "half_range",
    "jump_text",
    "law_text",
    "spread_text",
    "trend_text",
]

BRIEFEST = 15
"""The letters that a narrow table has room for."""
_NAMES: dict[LawName, str] = {
    "inverse root": "1/root",
    "exponential": "factor",
    "undecided": "trend",
}


@dataclass(frozen=True, slots=True)
class Jump:
    """A step between two layers that the law on either side does not make.

    `after` is the last layer before it and `layer` the first one behind it; `factor` and `by` are
    the quotient and the difference of the values there. `factor` is NaN where the sign changes.
    """

    after: int
    layer: int
    factor: float
    by: float


@dataclass(frozen=True, slots=True)
class Growth:
    """A law with its rate, its goodness of fit and the words for it.

    What `rate` is depends on the law:

    - flat: 0; none: NaN
    - linear, root, inverse root, inverse: by how much y, y², 1/y², 1/y grow per layer
    - exponential: the factor per layer
    - power: the exponent
    - saturating: the number of layers in which half of the way to the limit is gone
    - jump: the factor of the jump, or the difference where the sign changes
    - undecided: the last value over the first

    `r2` is 0 for flat: a constant explains no variance, so the text gives the spread instead.
    `brief` is the law in about a dozen letters, without its goodness: `×1.08/layer`. `jump` is set
    where the series jumps, and then the law is that of the side with a trend, else that of the
    longer one.
    """

    law: LawName
    rate: float
    r2: float
    text: str
    brief: str
    jump: Jump | None = None

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> dict[str, Any]:
        """Return everything but the brief words, ready for strict JSON."""
        jump = self.jump
        return {
            "law": self.law,
            "rate": strict_number(self.rate),
            "r2": strict_number(self.r2),
            "text": self.text,
            "jump": None
            if jump is None
            else {
                "after": jump.after,
                "layer": jump.layer,
                "factor": strict_number(jump.factor),
                "by": strict_number(jump.by),
            },
        }


def half_range(level: Vector) -> float:
    """Half the range over the size of the mean."""
    centre = abs(float(np.mean(level)))
    return float(np.ptp(level)) / 2 / centre if centre else math.inf


def flat_text(level: Vector, *, unit: float | None = None) -> str:
    """Say that values are flat and how far they spread: relative, or in a unit around zero."""
    if unit is not None:
        return f"flat (±{format_number(unit * float(np.ptp(level)) / 2, digits=2)})"
    return f"flat ({spread_text(level)})"


def spread_text(level: Vector) -> str:
    """Say half the range of values as a part of their mean."""
    percent = 100 * half_range(level)
    words = "< 0.1" if percent < 0.1 else f"{percent:.1f}" if percent < 1 else f"{percent:.0f}"
    return f"±{words} %"


def law_text(stretch: Stretch, rate: float, *, r2: float, grows: bool, limit: float) -> str:
    """Say the law of a stretch that is not flat, with its goodness."""
    goodness = f"(R² {math.floor(r2 * 1000) / 1000:.3f})"
    verb = "grows" if grows else "falls"
    size = format_number(abs(rate), digits=3)
    match stretch.law:
        case "linear":
            law = f"{_sign(rate)}{size} per layer"
        case "root":
            law = f"{verb} in square by {size} per layer"
        case "inverse root" | "inverse":
            law = f"{verb} as {_inverse(stretch)}"
        case "power":
            law = f"{verb} as l^{rate:.2f}"
        case "saturating":
            law = f"{verb} towards {format_number(limit, digits=3)}, half-way in {rate:.1f} layers"
        case _:
            law = f"×{_factor(rate)} per layer"
    return f"{law} {goodness}"


def brief_law(stretch: Stretch, rate: float, *, limit: float) -> str:
    """Say the law of a stretch in few letters."""
    size = format_number(abs(rate), digits=3)
    match stretch.law:
        case "flat":
            return "flat"
        case "linear":
            return f"{_sign(rate)}{size}/layer"
        case "root":
            return f"y² {_sign(rate)}{size}/layer"
        case "inverse root" | "inverse":
            return _inverse(stretch)
        case "power":
            return f"l^{rate:.2f}"
        case "saturating":
            return f"towards {format_number(limit, digits=3)}"
        case _:
            return f"×{_factor(rate)}/layer"


def trend_text(factor: float, first: int, last: int) -> str:
    """Say how much a series changes, and nothing about how."""
    verb = "grows" if factor > 1 else "falls"
    return f"{verb} ×{_factor(factor)} from layer {first} to {last}"


def jump_text(jump: Jump) -> str:
    """Say a jump with its place."""
    if math.isnan(jump.factor):
        verb = "jumps" if jump.by > 0 else "drops"
        size = f"by {format_number(abs(jump.by), digits=3)}"
    elif math.isinf(jump.factor):
        verb, size = "jumps" if jump.by > 0 else "drops", "from 0"
    else:
        verb = "jumps" if jump.factor > 1 else "drops"
        size = f"×{_factor(jump.factor)}"
    several = jump.layer - jump.after > 1
    place = f"over layers {jump.after + 1} to {jump.layer}" if several else f"at layer {jump.layer}"
    return f"{verb} {size} {place}"


def brief_factor(factor: float) -> str:
    """Say how much a series changes in few letters."""
    return f"×{_factor(factor)}"


def brief_jump(jump: Jump, law: LawName, *, rate: str, before: bool) -> str:
    """Say a jump and the law before or behind it in few letters.

    Where there is no room for the rate of the law it is left out, and then the law itself.
    """
    if math.isfinite(jump.factor):
        size = f"×{format_number(jump.factor, digits=2)}"
    else:
        size = f"{_sign(jump.by)}{format_number(abs(jump.by), digits=2)}"
    alone = f"{size} @{jump.layer}"
    for name in (rate.removesuffix("/layer").replace("y² ", "y²"), _NAMES.get(law, law)):
        words = f"{name}, {alone}" if before else f"{alone}, {name}"
        if len(words) <= BRIEFEST:
            return words
    return alone


def _inverse(stretch: Stretch) -> str:
    if abs(stretch.offset) < 0.05:
        inner = "l"
    else:
        offset = format_number(abs(stretch.offset), digits=2)
        inner = f"l {'+' if stretch.offset > 0 else '-'} {offset}"
    if stretch.law == "inverse root":
        return f"1/sqrt({inner})"
    return f"1/({inner})" if " " in inner else f"1/{inner}"


def _sign(value: float) -> str:
    return "+" if value > 0 else "-"


def _factor(factor: float) -> str:
    if not 0.1 < factor < 10:
        return format_number(factor, digits=3)
    return f"{factor:.3f}" if 0.9 < factor < 1.1 else f"{factor:.2f}"
