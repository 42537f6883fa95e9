"""Bounds on rank collapse set against the facts of networks: what counts, and how it is judged.

A ratio is measured / predicted for an upper bound and its inverse for a lower one, the largest over
the layers: above 1 it is a violation. What counts as evidence depends on the side:

    upper   every residual stands well above the rounding of the step that made it; one that has
            overflown is taken as the largest float, and what comes after it is not looked at
    lower   the tokens differ at the entry; a residual that falls below the rounding of its step is
            taken as that rounding, 10^-9 of the residual before it: it has fallen at least so far

Laws are not judged.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from leadline.instruments.attacks.attention import Attacked, WorstCase
from leadline.instruments.attacks.climbs import Path
from leadline.theory.rank_collapse import COLLAPSE_BOUNDS, CollapseBound, StackFacts
from leadline.theory.rank_collapse.bound import CollapseSide, measured_residuals
from leadline.theory.rank_collapse.cubic import layer_weight

__all__ = ["BEYOND", "evident", "judged_paths", "power", "until_overflow", "worst_of"]

ROUNDING_LOG = -9.0
"""The logarithm of the least residual that is evidence, relative to the terms it is made of."""
LARGEST_LOG = 300.0
"""Ratios end at 10 to this power."""
BEYOND = math.log10(sys.float_info.max)
"""The logarithm of what an infinite residual is at least."""


def judged_paths(
    paths: Sequence[Path], *, bounds: Sequence[str] | None = None
) -> dict[str, Attacked]:
    """Set the bounds against networks, each seen at one stop of its path or at several."""
    results: dict[str, Attacked] = {}
    for name, bound_class in COLLAPSE_BOUNDS.items():
        bound = bound_class()
        if bound.side != "law" and (bounds is None or name in bounds):
            results[name] = _together(_path(bound, path) for path in paths)
    return results


def _together(paths: Iterable[Attacked]) -> Attacked:
    one = Attacked()
    for path in paths:
        one = one.with_(path)
    return one


def _path(bound: CollapseBound, path: Path) -> Attacked:
    """The worst of a path, as one attack: where the conditions hold, if they do at some stop."""
    cases = [case for facts in path if (case := _case(bound, facts)) is not None]
    within = [case for case in cases if not case.failing]
    if not cases:
        return Attacked()
    once = worst_of(within or cases)
    return Attacked(within=once) if within else Attacked(outside=once)


def worst_of(cases: Iterable[WorstCase]) -> WorstCase:
    """Return the worst of several cases as one attack."""
    worst = WorstCase()
    for case in cases:
        worst = worst.with_(case)
    return replace(worst, attacks=1)


def _case(bound: CollapseBound, facts: StackFacts) -> WorstCase | None:
    """The largest ratio over the layers, and how many conditions fail; None without evidence."""
    if not evident(facts, bound.side):
        return None
    facts = until_overflow(facts)
    values, measured = bound.log10_values(facts), measured_residuals(facts, bound.measure)
    if values is None or not measured:
        return None
    upper = bound.side == "upper"
    sign, judged = (1.0, _capped(measured)) if upper else (-1.0, _floored(measured))
    sites = [
        (sign * (there - predicted), there)
        for predicted, there in zip(values[1:], judged[1:], strict=True)
        if not math.isnan(there - predicted)
    ]
    if not sites:
        return None
    log, there = max(sites)
    failing = sum(not condition.holds for condition in bound.conditions(facts))
    return WorstCase(1, power(log), there, facts, failing)


def power(log: float) -> float:
    """10^log, within the range of floats."""
    return math.inf if log == math.inf else 10.0 ** max(-LARGEST_LOG, min(LARGEST_LOG, log))


def evident(facts: StackFacts, side: CollapseSide = "upper") -> bool:
    """Whether the residuals of a network say something about a bound of this side.

    The terms of a step without mask and skip are at most of the size that the weights allow,
    lambda scaling (sum_h |W_QK,h|_1) w r^3; otherwise of about the size of the residual before it.
    """
    facts = until_overflow(facts)
    measures = (facts.log10_composite, facts.log10_smallest, facts.log10_frobenius)
    if not any(measures) or not all(math.isfinite(one[0]) for one in measures if one):
        return False
    if side == "lower":
        return not any(math.isnan(value) for one in measures for value in one)
    cubic = facts.mask == "none" and not facts.skip
    return all(
        after > -math.inf
        and after >= (layer_weight(layer) + 3.0 * before if cubic else before) + ROUNDING_LOG
        for measured in measures[:2]
        for layer, (before, after) in zip(facts.layers, pairwise(measured), strict=False)
    )


def until_overflow(facts: StackFacts) -> StackFacts:
    """The network up to the first residual that has overflown."""
    measures = (facts.log10_composite, facts.log10_smallest, facts.log10_frobenius)
    over = [at for one in measures for at, value in enumerate(one) if value == math.inf]
    last = min(over, default=facts.depth)
    if last >= facts.depth:
        return facts
    composite, smallest, frobenius = (one[: last + 1] for one in measures)
    return replace(
        facts,
        layers=facts.layers[:last],
        log10_composite=composite,
        log10_smallest=smallest,
        log10_frobenius=frobenius,
    )


def _capped(measured: Sequence[float]) -> list[float]:
    return [min(value, BEYOND) for value in measured]


def _floored(measured: Sequence[float]) -> list[float]:
    """The residuals, none further below the one before it than rounding allows to say."""
    residuals = [measured[0]]
    for value in measured[1:]:
        residuals.append(max(value, residuals[-1] + ROUNDING_LOG))
    return residuals
