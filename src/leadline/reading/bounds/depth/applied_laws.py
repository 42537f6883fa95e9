"""What laws of depth predict along the layers, beside what a record holds.

A law predicts a band. Its two ends stand as two results of one name, an upper and a lower one:

    predicted   the end of the band at the site
    measured    what was read there: the mean over tokens, or the largest over the examples
    ratio       measured / predicted
    applies     every assumption holds, and every number is known

Most laws are about the mean over random weights, of which a model is one draw: they are never
violated, and a ratio beyond 1 says how far this draw lies outside. One that is strict is violated
where it applies and a reading passes it by more than rounding and its own interval.

Unless laws are asked for by name, those are shown that have a prediction and of whose assumptions
none is known to fail.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from leadline.reading.bounds.refusals import not_known
from leadline.reading.bounds.table import BoundAtHead, BoundResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.reading.bounds.depth.facts import DepthStack
    from leadline.record import Reading
    from leadline.theory import Law

__all__ = ["fitting_laws", "law_results"]

ROUNDING = 1e-6
"""By what share of an end a reading may pass it and still be called rounding."""
NOT_KNOWN = "a number that it needs is not in the record"
End = Literal["upper", "lower"]


def fitting_laws(
    laws: Sequence[tuple[str, Law]], stacks: Sequence[DepthStack]
) -> list[tuple[str, Law]]:
    """Return the laws that predict something and are not known to be about another design."""
    return [(name, law) for name, law in laws if any(_fits(law, stack) for stack in stacks)]


def law_results(
    name: str, law: Law, *, stacks: Sequence[DepthStack], layer: int | None = None
) -> list[BoundResult]:
    """Set both ends of a law beside the readings of the stacks; `layer` asks for one layer."""
    statistic = next((stack.statistics.get(law.quantity, "") for stack in stacks), "")
    ends: tuple[End, End] = ("upper", "lower")
    return [
        BoundResult(
            name=name,
            title=law.title,
            statement=law.statement,
            source=law.source,
            side=end,
            quantity=law.quantity,
            statistic=statistic or "mean",
            rows=tuple(
                row
                for stack in stacks
                for row in _rows(law, stack, end)
                if layer is None or row.layer == layer
            ),
            log10=law.log10,
            family="depth",
        )
        for end in ends
    ]


def _fits(law: Law, stack: DepthStack) -> bool:
    refuted = any(c.because for c in law.conditions(stack.facts) if not c.holds)
    measured = bool(stack.measured.get(law.quantity))
    return measured and not refuted and law.predicted(stack.facts) is not None


def _rows(law: Law, stack: DepthStack, end: End) -> list[BoundAtHead]:
    """Return a row for every layer; site 0 is what predictions start from, and has none."""
    bands = law.predicted(stack.facts)
    failing = [c for c in law.conditions(stack.facts) if not c.holds]
    because = tuple(dict.fromkeys(c.because or not_known(c.assumption) for c in failing))
    rows: list[BoundAtHead] = []
    for layer in range(1, stack.facts.depth + 1):
        predicted = None if bands is None else bands[layer][end == "upper"]
        if predicted is not None and math.isnan(predicted):
            predicted = None
        reading = stack.measured.get(law.quantity, {}).get(layer)
        reasons = because or ((NOT_KNOWN,) if predicted is None else ())
        measured, lower, upper = _measured(reading, log10=law.log10)
        rows.append(
            BoundAtHead(
                stack=stack.name,
                layer=layer,
                sublayer=None,
                point="stream",
                head=None,
                predicted=predicted,
                measured=measured,
                lower=lower,
                upper=upper,
                ratio=_ratio(measured, predicted, log10=law.log10),
                applies=not reasons,
                because=reasons,
                violated=law.strict
                and not reasons
                and _contradicts(measured, (lower, upper), predicted, end, log10=law.log10),
            )
        )
    return rows


def _measured(
    reading: Reading | None, *, log10: bool
) -> tuple[float | None, float | None, float | None]:
    """Return what was read and its interval, as logarithms where the law has them."""
    if reading is None:
        return None, None, None
    ends = (reading.value, reading.lower, reading.upper)
    if not log10:
        return ends
    value, lower, upper = (None if end is None else _log10(end) for end in ends)
    return value, lower, upper


def _log10(value: float) -> float:
    if math.isnan(value):
        return math.nan
    return -math.inf if value <= 0.0 else math.log10(value) if value < math.inf else math.inf


def _contradicts(
    measured: float | None,
    interval: tuple[float | None, float | None],
    predicted: float | None,
    end: End,
    *,
    log10: bool,
) -> bool:
    """Whether a reading passes an end by more than rounding; NaN contradicts nothing."""
    if measured is None or predicted is None:
        return False
    slack = math.log10(1.0 + ROUNDING) if log10 else ROUNDING * abs(predicted)
    if end == "upper":
        least = measured if interval[0] is None else interval[0]
        return least > predicted + slack
    most = measured if interval[1] is None else interval[1]
    return most < predicted - slack


def _ratio(measured: float | None, predicted: float | None, *, log10: bool) -> float:
    """Return measured / predicted; NaN where there is none, 0 or infinite where float ends."""
    if measured is None or predicted is None:
        return math.nan
    if not log10:
        return measured / predicted if predicted else math.nan
    if predicted == -math.inf or math.isnan(measured - predicted):
        return math.nan  # a lower end of zero says nothing
    apart = measured - predicted
    return 10.0**apart if abs(apart) < 300.0 else math.inf if apart > 0 else 0.0
