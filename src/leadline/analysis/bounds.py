"""What theorems predict about attention, beside what was measured.

For every bound, every attention sublayer and every head:

    predicted   the bound, the largest over the shapes of the input (a lower one: the smallest)
    measured    the largest value over the examples (for a lower bound: the smallest there is)
    ratio       measured / predicted
    applies     every assumption holds on every shape, and every number is known

A bound is violated where it applies and the measurement contradicts it: the lower end of the
measured interval lies above an upper bound (the upper end below a lower bound) by more than
rounding, a millionth of the bound. Nothing is then wrong with the theorem: the measurement, a
number in the record or an assumption that was taken to hold is.

A quantity without heads, such as the norm of a product of layers, has one row per sublayer.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from leadline.analysis.attention_facts import attention_sublayers, facts_of, head_readings
from leadline.analysis.bounds_table import BoundAtHead, BoundResult, BoundsTable
from leadline.catalog import Choice
from leadline.errors import RecordError
from leadline.record.ingredients import INGREDIENTS
from leadline.record.provenance import text_at
from leadline.theory import BOUNDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from leadline.analysis.attention_facts import Address, AttentionSublayer, HeadReadings
    from leadline.record import Reading, Record
    from leadline.theory import AttentionFacts, Bound
    from leadline.theory.attention._bound import Side

__all__ = ["BoundAtHead", "BoundResult", "BoundsTable", "bounds", "has_attention"]

ROUNDING = 1e-6
"""By what share of a bound a measurement may pass it and still be called rounding."""
NOT_KNOWN = "a number that it needs is not in the record"
_STATISTICS: dict[Side, tuple[str, ...]] = {
    "upper": ("max", "value", "mean"),
    "lower": ("min", "mean", "value", "max"),
}


def bounds(
    record: Record, *, names: Sequence[str] | None = None, layer: int | None = None
) -> BoundsTable:
    """Set what theorems predict about attention beside what a record holds.

    `names` chooses bounds (all of them otherwise; `leadline list bounds` shows them), `layer` one
    layer. Needs a record with attention readings.
    """
    if not has_attention(record):
        raise RecordError(_nothing_measured(record))
    sublayers = attention_sublayers(record)
    chosen = [(str(Choice.parse(name)), BOUNDS.build(name)) for name in names or BOUNDS.names()]
    measured = {name: _measured(record, bound) for name, bound in chosen}
    if names is None:
        chosen = [(name, bound) for name, bound in chosen if measured[name][1]]
    if not chosen:
        raise RecordError(_nothing_measured(record))
    if layer is not None:
        sublayers = _of_layer(sublayers, layer)
    facts = facts_of(record, sublayers)
    found = [
        BoundResult(
            name=name,
            title=bound.title,
            statement=bound.statement,
            source=bound.source,
            side=bound.side,
            quantity=bound.quantity,
            statistic=measured[name][0],
            rows=tuple(
                _row(seen, head, bound, measured[name][1], facts[seen.address, head])
                for seen, head in _places(sublayers, measured[name][1])
            ),
        )
        for name, bound in chosen
    ]
    called = text_at(record.provenance, "model", "name")
    return BoundsTable(called, tuple(sorted(found, key=_order)))


def has_attention(record: Record) -> bool:
    """Whether a record tells of attention sublayers and holds what was measured there."""
    measured = (
        name
        for name in record.quantities
        if name.startswith("attention.") and name not in INGREDIENTS
    )
    return bool(attention_sublayers(record)) and any(record.select(name) for name in measured)


def _measured(record: Record, bound: Bound) -> tuple[str, HeadReadings]:
    """Return the readings to compare with, and their statistic: the first of those there are."""
    wanted = _STATISTICS[bound.side]
    for statistic in wanted:
        if readings := head_readings(record, bound.quantity, statistic):
            return statistic, readings
    return wanted[0], head_readings(record, bound.quantity, wanted[0])


def _places(
    sublayers: Sequence[AttentionSublayer], readings: HeadReadings
) -> Iterator[tuple[AttentionSublayer, int | None]]:
    """Yield every head, or every sublayer once for a quantity without heads.

    Such a quantity may be measured in some sublayers only; if it is in none, all are told.
    """
    if readings.by_head:
        yield from ((seen, head) for seen in sublayers for head in seen.head_numbers)
        return
    told: set[Address] = set()
    for seen in sublayers:
        if seen.address not in told and (not readings or readings.at(seen.address, None)):
            told.add(seen.address)
            yield seen, None


def _row(
    seen: AttentionSublayer,
    head: int | None,
    bound: Bound,
    readings: HeadReadings,
    facts: Sequence[AttentionFacts],
) -> BoundAtHead:
    values = [bound.value(one) for one in facts]
    known = [value for value in values if value is not None and not math.isnan(value)]
    because = _because(bound, facts)
    if not because and (len(known) < len(values) or not values):
        because = (NOT_KNOWN,)
    upper_bound = bound.side == "upper"
    predicted = (max if upper_bound else min)(known, default=None)
    reading = _extreme(readings.at(seen.address, head), largest=upper_bound)
    applies = not because
    measured = None if reading is None else reading.value
    return BoundAtHead(
        stack=seen.stack,
        layer=seen.layer,
        sublayer=seen.sublayer,
        point=seen.point,
        head=head,
        predicted=predicted,
        measured=measured,
        lower=None if reading is None else reading.lower,
        upper=None if reading is None else reading.upper,
        ratio=_ratio(measured, predicted),
        applies=applies,
        because=because,
        violated=applies and _contradicts(reading, predicted, side=bound.side),
    )


def _because(bound: Bound, facts: Iterable[AttentionFacts]) -> tuple[str, ...]:
    """Say which assumptions fail on any of the shapes, each once."""
    found = (
        condition.because or f"not given: {condition.assumption}"
        for one in facts
        for condition in bound.conditions(one)
        if not condition.holds
    )
    return tuple(dict.fromkeys(found))


def _extreme(readings: Sequence[Reading], *, largest: bool) -> Reading | None:
    """Of several readings (seeds) the one that tells most; one that is no number goes first."""
    if not readings:
        return None
    for reading in readings:
        if math.isnan(reading.value):
            return reading
    return (max if largest else min)(readings, key=lambda reading: reading.value)


def _contradicts(reading: Reading | None, predicted: float | None, *, side: Side) -> bool:
    """Whether the measurement passes the bound by more than rounding; NaN contradicts nothing."""
    if reading is None or predicted is None:
        return False
    if side == "upper":
        least = reading.value if reading.lower is None else reading.lower
        return least > predicted + ROUNDING * abs(predicted)
    most = reading.value if reading.upper is None else reading.upper
    return most < predicted - ROUNDING * abs(predicted)


def _ratio(measured: float | None, predicted: float | None) -> float:
    if measured is None or predicted is None:
        return math.nan
    if predicted == 0 or (math.isinf(measured) and math.isinf(predicted)):
        return math.nan
    return measured / predicted


def _of_layer(sublayers: Sequence[AttentionSublayer], layer: int) -> list[AttentionSublayer]:
    found = [seen for seen in sublayers if seen.layer == layer]
    if not found:
        layers = sorted({seen.layer for seen in sublayers})
        raise RecordError(
            f"Layer {layer} has no attention readings in this record; "
            f"layers {layers[0]} to {layers[-1]} have some."
        )
    return found


def _order(result: BoundResult) -> tuple[object, ...]:
    """Violated first, then what applies; heads before whole layers, upper bounds before lower."""
    closest = result.closest
    ratio = 0.0 if closest is None else closest.ratio
    by_head = any(row.head is not None for row in result.rows)
    upper = result.side == "upper"
    return (
        not result.violations,
        not result.applying,
        not by_head,
        not upper,
        -ratio if upper else ratio,
        result.name,
    )


def _nothing_measured(record: Record) -> str:
    which = f"The record {record.path}" if record.path is not None else "This record"
    return (
        f"{which} holds no attention readings, and the bounds are about attention: "
        "measure the model again with `leadline measure MODEL --probes attention`."
    )
