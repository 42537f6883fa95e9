"""A check as a strip: the numbers on a line, the limit marked, the allowed side shaded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from leadline.claims.page.axes import fitted

if TYPE_CHECKING:
    from leadline.claims.ruling import Checked

__all__ = ["strip"]

WIDE_RANGE = 30.0
"""Positive numbers that lie farther apart than this factor stand on a logarithmic strip."""


def strip(checked: Checked) -> str:
    """The numbers of a check on a line, with the allowed side shaded and the limit marked."""
    check = checked.check
    finite = [v for v in checked.values if math.isfinite(v)]
    ends = [v for v in (checked.lower, checked.upper) if math.isfinite(v)]
    near = check.relation == "near"
    limits = [check.limit - check.within, check.limit + check.within] if near else [check.limit]
    every = [*finite, *ends, *limits]
    positive = min(every) > 0
    log = positive and (check.log or max(every) / min(every) > WIDE_RANGE)
    axis = fitted(every, log=log, start=10, end=290, room=0.14, least=0.1)
    left = 2.0 if check.lower == -math.inf else axis.at(check.lower)
    right = 298.0 if check.upper == math.inf else axis.at(check.upper)
    if right - left < 2:
        left, right = left - 1, right + 1
    parts = [
        f'<rect class="allowed" x="{left:.1f}" y="3" width="{right - left:.1f}" height="18"/>',
        '<path class="base" d="M2 12H298"/>',
    ]
    if log:
        low, high = math.log10(axis.low), math.log10(axis.high)
        step = max(1, math.ceil((high - low) / 12))
        at = [
            axis.at(10.0**p)
            for p in range(math.ceil(low / step) * step, math.floor(high) + 1, step)
        ]
        parts.append(f'<path class="tick" d="{"".join(f"M{x:.1f} 9.5v5" for x in at)}"/>')
    parts += [f'<path class="limit" d="M{axis.at(v):.1f} 1V23"/>' for v in limits if axis.shows(v)]
    kind = {"holds": "good", "fails": "bad", "undecided": "open"}[checked.outcome]
    if len(ends) == 2 and axis.at(ends[1]) - axis.at(ends[0]) > 0.5:
        parts.append(
            f'<path class="interval {kind}" d="M{axis.at(ends[0]):.1f} 12H{axis.at(ends[1]):.1f}"/>'
        )
    if len(finite) > 1:
        parts += [f'<circle class="seed" cx="{axis.at(v):.1f}" cy="12" r="1.8"/>' for v in finite]
    if len(finite) == len(checked.values):
        parts.append(_outcome_mark(kind, axis.at(min(max(checked.mean, axis.low), axis.high))))
    else:
        parts.append(_edge(checked.values, kind))
    return f'<svg class="strip-line" viewBox="0 0 300 24" aria-hidden="true">{"".join(parts)}</svg>'


def _outcome_mark(kind: str, x: float) -> str:
    if kind == "good":
        return f'<circle class="mark good" cx="{x:.1f}" cy="12" r="5"/>'
    if kind == "bad":
        return f'<path class="mark bad" d="M{x - 4.5:.1f} 7.5l9 9m0-9l-9 9"/>'
    return f'<path class="mark open" d="M{x:.1f} 6l5.5 10h-11z"/>'


def _edge(values: Sequence[float], kind: str) -> str:
    """An arrow beyond the edge for what is infinite; a cross in the middle for what is no number."""
    if any(math.isnan(v) for v in values):
        return '<path class="mark bad" d="M145.5 7.5l9 9m0-9l-9 9"/>'
    if any(v > 0 and math.isinf(v) for v in values):
        return f'<path class="mark arrow {kind}" d="M284 6l12 6-12 6z"/>'
    return f'<path class="mark arrow {kind}" d="M16 6l-12 6 12 6z"/>'
