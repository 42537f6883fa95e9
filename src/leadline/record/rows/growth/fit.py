"""The choice among the candidates, and what is said of it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from leadline.record.rows.growth.candidates import (
    FEWEST,
    TIE,
    Candidate,
    DepthSeries,
    candidates,
    is_flat,
    r2_of_the_ends,
)
from leadline.record.rows.growth.stretch import Stretch, trends
from leadline.record.rows.growth.words import (
    Growth,
    Jump,
    brief_factor,
    brief_jump,
    brief_law,
    flat_text,
    jump_text,
    law_text,
    spread_text,
    trend_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    Vector = NDArray[np.float64]

__all__ = ["fit_growth"]

# A law goes through zero at layer 0 if it has at most so much of the next layer there.
NEARLY_ZERO = 0.05
# A goodness below this is no hint at a law.
LEAST_HINT = 0.3


def fit_growth(layers: Sequence[int] | ArrayLike, values: ArrayLike) -> Growth:
    """Find the law that describes the values over the layers best."""
    depth = np.asarray(layers, dtype=np.float64)
    level = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(level)
    lost = int(np.count_nonzero(~finite))
    depth, level = depth[finite], level[finite]
    if len(np.unique(depth[depth >= 1])) < FEWEST:
        growth = Growth("none", math.nan, 0.0, "too few layers for a law", "no law")
    elif not np.any(level):
        growth = Growth("flat", 0.0, 0.0, "flat (all 0)", "flat")
    elif level[0] == 0 and bool(np.all(level[1:] > 0) or np.all(level[1:] < 0)):
        growth = _fit_from_zero(depth, level)
    else:
        growth = _fit(DepthSeries.of(depth, level))
    if not lost:
        return growth
    layer_word = "layer" if lost == 1 else "layers"
    return replace(growth, text=f"{growth.text}; {lost} {layer_word} not finite")


def _fit(series: DepthSeries) -> Growth:
    if is_flat(series.level):
        return _flat(series)
    choice = _choose(candidates(series))
    if not choice:
        return _nothing(series)
    if len(choice) > 1 or choice[0].main.law == "undecided":
        return _undecided(series, choice)
    return _growth(series, choice[0])


def _fit_from_zero(depth: Vector, level: Vector) -> Growth:
    """Describe a series that starts at zero, which has no logarithm, by what follows."""
    series = DepthSeries.of(depth[1:], level[1:])
    growth = _fit(series)
    if growth.law in ("linear", "root") and growth.jump is None:
        side = next(
            side
            for side in trends(series.depth, series.observed, 0, len(series), logs=True)
            if side.law == growth.law
        )
        if abs(side.offset + depth[0]) <= NEARLY_ZERO * abs(side.offset + depth[1]):
            return growth
    if growth.law == "none" or growth.jump is not None:
        return _none(growth.r2)
    jump = Jump(int(depth[0]), int(depth[1]), math.inf, float(level[1]))
    flat = growth.law == "flat"
    return Growth(
        "jump" if flat else growth.law,
        math.inf if flat else growth.rate,
        growth.r2,
        f"{jump_text(jump)}, then {growth.text}",
        brief_jump(jump, growth.law, rate=growth.brief, before=False),
        jump,
    )


def _choose(rivals: Sequence[Candidate]) -> list[Candidate]:
    """The simplest of those that fit best: one, or several that nothing tells apart."""
    if not rivals:
        return []
    least = min(rival.score for rival in rivals)
    near = [rival for rival in rivals if rival.score < least + TIE]
    simplest = min(map(_complexity, near))
    return [rival for rival in near if _complexity(rival) == simplest]


def _complexity(candidate: Candidate) -> tuple[int, bool]:
    """The number of constants; a jump is easier to say than a curve with as many."""
    return candidate.parameters, candidate.main.law == "saturating"


def _growth(series: DepthSeries, candidate: Candidate) -> Growth:
    main = candidate.main
    rate = series.rate(main)
    brief = brief_law(main, rate, limit=_limit(series, main))
    if candidate.place is None:
        if main.law == "flat":
            return _flat(series)
        return Growth(main.law, rate, series.r2(main), _side_text(series, main), brief)
    jump = _jump(series, candidate)
    first, second = candidate.sides
    before = "" if first.law == "none" else f"{_side_text(series, first)}, then "
    behind = "" if second.law == "none" else f", then {_side_text(series, second)}"
    flat = main.law == "flat"
    size = jump.by if math.isnan(jump.factor) else jump.factor
    return Growth(
        "jump" if flat else main.law,
        size if flat else rate,
        _whole_r2(series, candidate),
        f"{before}{jump_text(jump)}{behind}",
        brief_jump(jump, main.law, rate=brief, before=main is first),
        jump,
    )


def _undecided(series: DepthSeries, rivals: Sequence[Candidate]) -> Growth:
    """Say how far the series goes where several laws fit equally well, or none but it drifts.

    A jump is said if all have it. Around zero there is no factor to say.
    """
    if not series.logs:
        return _none(max(_whole_r2(series, rival) for rival in rivals))
    best = min(rivals, key=lambda rival: rival.score)
    r2, factor = _whole_r2(series, best), _quotient(series, 0, len(series) - 1)
    start, stop = best.main.start, best.main.stop - 1
    same = {(rival.place, rival.main.start, rival.main.stop) for rival in rivals}
    text = trend_text(factor, int(series.depth[0]), int(series.depth[-1]))
    if best.place is None or len(same) > 1:
        return Growth("undecided", factor, r2, text, f"{brief_factor(factor)} in all")
    jump = _jump(series, best)
    change = _quotient(series, start, stop)
    trend = trend_text(change, int(series.depth[start]), int(series.depth[stop]))
    other = next(side for side in best.sides if side is not best.main)
    beside = "" if other.law == "none" else _side_text(series, other)
    parts = [trend, jump_text(jump), beside] if start == 0 else [beside, jump_text(jump), trend]
    return Growth(
        "undecided",
        factor,
        r2,
        ", then ".join(part for part in parts if part),
        brief_jump(jump, "undecided", rate=brief_factor(change), before=start == 0),
        jump,
    )


def _flat(series: DepthSeries) -> Growth:
    return Growth("flat", 0.0, 0.0, flat_text(series.level), f"flat {spread_text(series.level)}")


def _nothing(series: DepthSeries) -> Growth:
    laws = trends(series.depth, series.observed, 0, len(series), logs=series.logs)
    return _none(max(r2_of_the_ends(series, law) for law in laws))


def _none(r2: float) -> Growth:
    hint = f" (best R² {math.floor(r2 * 100) / 100:.2f})" if r2 >= LEAST_HINT else ""
    return Growth("none", math.nan, r2, f"no simple law{hint}", "no law")


def _side_text(series: DepthSeries, side: Stretch) -> str:
    if side.law == "flat":
        level = series.level[side.start : side.stop]
        return flat_text(level, unit=None if series.logs else series.scale)
    grows = bool(side.fitted[-1] > side.fitted[0])
    return law_text(
        side, series.rate(side), r2=series.r2(side), grows=grows, limit=_limit(series, side)
    )


def _limit(series: DepthSeries, side: Stretch) -> float:
    return side.offset * series.scale * series.sign


def _jump(series: DepthSeries, candidate: Candidate) -> Jump:
    first, second = candidate.sides
    # Layers that stand on their own before a law are all part of the way to it.
    after = first.start if first.law == "none" else first.stop - 1
    by = float(series.level[second.start] - series.level[after]) * series.scale
    factor = _quotient(series, after, second.start) if series.logs else math.nan
    return Jump(int(series.depth[after]), int(series.depth[second.start]), factor, by)


def _quotient(series: DepthSeries, start: int, stop: int) -> float:
    return math.exp(min(float(series.observed[stop] - series.observed[start]), 700.0))


def _whole_r2(series: DepthSeries, candidate: Candidate) -> float:
    total = float(np.sum((series.observed - series.observed.mean()) ** 2))
    return max(0.0, 1.0 - sum(side.rss for side in candidate.sides) / total)
