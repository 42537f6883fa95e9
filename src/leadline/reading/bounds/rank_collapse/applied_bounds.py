"""What theorems on rank collapse predict, beside the residuals of a record or of exact facts.

For every statement, every stack and every layer, all as log10:

    predicted   the residual after the layer
    measured    the residual there: the largest over the examples, where the record has it
    ratio       measured / predicted, 0 or infinite where it lies beyond float
    applies     every assumption holds up to that layer, and every number is known

A statement is violated where it applies and the measurement contradicts it by more than rounding.
Tokens that have become equal still differ by rounding, so a reading is judged by the lower end of
its interval: at the floor of rounding that end is zero, which is evidence of nothing, and a
reading without an interval is no evidence against an upper bound either. Exact facts are judged
as they are (`exact`). A law is never violated.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from leadline.reading.bounds.rank_collapse.residuals import RESIDUALS
from leadline.reading.bounds.refusals import not_known
from leadline.reading.bounds.table import BoundAtHead, BoundResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.reading.bounds.rank_collapse.facts import CollapsePrefix, CollapseStack
    from leadline.reading.bounds.rank_collapse.residuals import Residual
    from leadline.theory import CollapseBound
    from leadline.theory.rank_collapse.bound import CollapseSide, Measure

__all__ = ["collapse_result"]

ROUNDING = 1e-6
"""By what share of a bound a residual may pass it and still be called rounding."""
LOG_ROUNDING = 1e-9
"""The same of the logarithm itself, whose own digits end where it is large."""
NOT_KNOWN = "a number that it needs is not in the record"


def collapse_result(
    name: str, bound: CollapseBound, *, stacks: Sequence[CollapseStack], layer: int | None = None
) -> BoundResult:
    """Set one statement beside the residuals of the stacks; `layer` asks for one layer."""
    return BoundResult(
        name=name,
        title=bound.title,
        statement=bound.statement,
        source=bound.source,
        side=bound.side,
        quantity=RESIDUALS[bound.measure],
        statistic=_statistic(stacks, bound.measure),
        rows=tuple(
            row
            for stack in stacks
            for row in _rows(bound, stack)
            if layer is None or row.layer == layer
        ),
        log10=True,
        family="collapse",
    )


def _statistic(stacks: Sequence[CollapseStack], measure: Measure) -> str:
    known = [stack.statistics.get(measure, "") for stack in stacks]
    return next((one for one in known if one), "max")


def _rows(bound: CollapseBound, stack: CollapseStack) -> list[BoundAtHead]:
    """Return a row for every layer; the entry is what predictions start from, and has none."""
    rows: list[BoundAtHead] = []
    for layer, prefix in enumerate(stack.prefixes, start=1):
        values = bound.log10_values(prefix.facts)
        predicted = None if values is None or math.isnan(values[-1]) else values[-1]
        because = _because(bound, stack, prefix)
        if predicted is None and not because:
            because = (NOT_KNOWN,)
        residual = stack.residuals[bound.measure][layer]
        measured = None if residual is None else residual.value
        rows.append(
            BoundAtHead(
                stack=stack.name,
                layer=layer,
                sublayer=None,
                point="stream",
                head=None,
                predicted=predicted,
                measured=measured,
                lower=None if residual is None else residual.lower,
                upper=None if residual is None else residual.upper,
                ratio=_ratio(measured, predicted),
                applies=not because,
                because=because,
                violated=not because and _contradicts(residual, predicted, side=bound.side),
            )
        )
    return rows


def _because(bound: CollapseBound, stack: CollapseStack, prefix: CollapsePrefix) -> tuple[str, ...]:
    """Say which assumptions fail, and what of them cannot be known."""
    if prefix.remarks:
        return prefix.remarks
    reasons = [
        condition.because or not_known(condition.assumption)
        for condition in bound.conditions(prefix.facts)
        if not condition.holds
    ]
    if bound.measure in stack.missing:
        reasons = [stack.missing[bound.measure], *reasons]
    if bound.side != "lower":
        reasons = [*prefix.attention_remarks, *reasons]
        # A lower bound that every example obeys is obeyed by their mean.
        reasons += [stack.averaged[bound.measure]] if bound.measure in stack.averaged else []
    return tuple(dict.fromkeys(reasons))


def _contradicts(residual: Residual | None, predicted: float | None, *, side: CollapseSide) -> bool:
    """Whether a residual passes the bound by more than rounding; NaN contradicts nothing."""
    if residual is None or predicted is None or side == "law":
        return False
    slack = math.log10(1.0 + ROUNDING)
    if math.isfinite(predicted):
        slack += LOG_ROUNDING * abs(predicted)
    if side == "upper":
        return residual.least is not None and residual.least > predicted + slack
    most = residual.value if residual.upper is None else residual.upper
    return most < predicted - slack


def _ratio(measured: float | None, predicted: float | None) -> float:
    """Return 10^(measured - predicted), 0 or infinite where float ends."""
    if measured is None or predicted is None or math.isnan(measured - predicted):
        return math.nan
    apart = measured - predicted
    if abs(apart) > 320.0:
        return 0.0 if apart < 0 else math.inf
    try:
        return 10.0**apart
    except OverflowError:
        return math.inf
