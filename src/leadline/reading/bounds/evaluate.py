"""What theorems predict about attention, rank collapse and depth, beside what was measured.

For every bound on attention, every attention sublayer and every head:

    predicted   the bound, the largest over the shapes of the input (a lower one: the smallest)
    measured    the largest value over the examples (for a lower bound: the smallest there is)
    ratio       measured / predicted
    applies     every assumption holds on every shape, and every number is known

A bound is violated where it applies and the measurement contradicts it: the lower end of the
measured interval lies above an upper bound (the upper end below a lower bound) by more than
rounding, a millionth of the bound. Nothing is then wrong with the theorem: the measurement, a
number in the record or an assumption that was taken to hold is.

A quantity without heads, such as the norm of a product of layers, has one row per sublayer. The
bounds on rank collapse, with one row per layer, are those of `rank_collapse`, the laws of depth
those of `depth`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leadline.catalog import Choice
from leadline.errors import InputError, RecordError, UnknownName, shown
from leadline.reading.bounds.attention_facts import attention_sublayers, facts_of, head_readings
from leadline.reading.bounds.depth.applied_laws import fitting_laws, law_results
from leadline.reading.bounds.depth.facts import depth_stacks, has_depth
from leadline.reading.bounds.rank_collapse.applied_bounds import collapse_result
from leadline.reading.bounds.rank_collapse.exact import exact_stack, exact_stacks
from leadline.reading.bounds.rank_collapse.facts import collapse_stacks, has_collapse
from leadline.reading.bounds.refusals import (
    check_record_or_facts,
    no_attention_facts,
    not_along_layers,
    not_known,
    nothing_measured,
)
from leadline.reading.bounds.table import FAMILIES, BoundAtHead, BoundResult, BoundsTable
from leadline.record.provenance import text_at
from leadline.record.run.scanned import refuse_scan
from leadline.theory import BOUNDS, COLLAPSE_BOUNDS, LAWS, StackFacts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from leadline.reading.bounds.attention_facts import (
        AttentionSublayer,
        HeadReadings,
        SublayerAddress,
    )
    from leadline.reading.bounds.rank_collapse.facts import CollapseStack
    from leadline.record import Reading, Record
    from leadline.theory import AttentionFacts, Bound, CollapseBound, Law
    from leadline.theory.attention._bound import Side

__all__ = [
    "BoundAtHead",
    "BoundResult",
    "BoundsTable",
    "bounds",
    "has_attention",
    "has_collapse",
    "has_depth",
]

ROUNDING = 1e-6
"""By what share of a bound a measurement may pass it and still be called rounding."""
NOT_KNOWN = "a number that it needs is not in the record"
_STATISTICS: dict[Side, tuple[str, ...]] = {
    "upper": ("max", "value", "mean"),
    "lower": ("min", "mean", "value", "max"),
}


def bounds(
    record: Record | StackFacts,
    *,
    names: Sequence[str] | None = None,
    layer: int | None = None,
    initial: bool | None = None,
) -> BoundsTable:
    """Set what theorems predict about attention, rank collapse and depth beside a record.

    `names` chooses bounds (all of them otherwise; `leadline list bounds` shows them), `layer` one
    layer. Needs a record with readings of the probe `attention`, of `residual` and `collapse`, or
    of `stream` or `jacobian`. `initial` says whether the weights are as they were drawn, where the
    record does not know it: laws of depth ask for it. With a record that `leadline.collapse` wrote
    with `facts=True` (or the `facts` of its result) the bounds on rank collapse stand beside
    residuals that are right far below rounding.
    """
    check_record_or_facts(record)
    if isinstance(names, str) or not isinstance(names, list | tuple | None):
        raise InputError(f"names is {shown(names)}; give a list of names of bounds.")
    names = names or None
    choice = _choose_bounds(names)
    if isinstance(record, StackFacts):
        return _of_facts(record, choice, layer=layer, named=names is not None)
    refuse_scan(record)
    results: list[BoundResult] = []
    if has_attention(record):
        results += _of_attention(
            record, choice.attention, layer=layer, everything=names is not None
        )
    elif names is not None and choice.attention:
        raise RecordError(nothing_measured(record, "attention"))
    if has_collapse(record):
        stacks = exact_stacks(record) or collapse_stacks(record)
        results += _of_stacks(choice.collapse, stacks, layer=layer)
    elif names is not None and choice.collapse:
        raise RecordError(nothing_measured(record, "collapse"))
    if has_depth(record):
        laws = choice.laws
        of_depth = depth_stacks(record, initial=initial)
        if names is None:
            laws = fitting_laws(laws, of_depth)
        for name, law in laws:
            results += law_results(name, law, stacks=of_depth, layer=layer)
    elif names is not None and choice.laws:
        raise RecordError(nothing_measured(record, "depth"))
    if not results:
        raise RecordError(nothing_measured(record, "bounds"))
    if layer is not None and not any(result.rows for result in results):
        raise RecordError(_no_such_layer(record, layer))
    model_name = text_at(record.provenance, "model", "name")
    return BoundsTable(model_name, tuple(sorted(results, key=_order)))


@dataclass(frozen=True, slots=True)
class _BoundChoice:
    """The bounds that were asked for, by family."""

    attention: list[tuple[str, Bound]]
    collapse: list[tuple[str, CollapseBound]]
    laws: list[tuple[str, Law]]


def _choose_bounds(names: Sequence[str] | None) -> _BoundChoice:
    """Build the bounds that were asked for; of the laws of depth those along the layers."""
    attention, collapse = [*BOUNDS.names()], [*COLLAPSE_BOUNDS.names()]
    laws = [name for name, law in LAWS.items() if law.along == "layers"]
    if names is not None:
        choices = [Choice.parse(name) for name in names]
        for choice in choices:
            if choice.name in LAWS and choice.name not in laws:
                raise InputError(not_along_layers(choice.name))
            if not any(choice.name in known for known in (attention, collapse, laws)):
                raise UnknownName("bound", choice.name, [*attention, *collapse, *laws])
        attention = [str(choice) for choice in choices if choice.name in BOUNDS]
        collapse = [str(choice) for choice in choices if choice.name in COLLAPSE_BOUNDS]
        laws = [str(choice) for choice in choices if choice.name in LAWS]
    return _BoundChoice(
        [(name, BOUNDS.build(name)) for name in attention],
        [(name, COLLAPSE_BOUNDS.build(name)) for name in collapse],
        [(name, LAWS.build(name)) for name in laws],
    )


def _of_facts(
    facts: StackFacts, choice: _BoundChoice, *, layer: int | None, named: bool
) -> BoundsTable:
    """Compare the bounds on rank collapse with exact facts."""
    if not facts.depth:
        raise InputError("These facts have no layers, and bounds are about what layers do.")
    if named and choice.attention:
        raise InputError(no_attention_facts(choice.attention[0][0]))
    if named and choice.laws:
        raise InputError(no_attention_facts(choice.laws[0][0], about="whole streams"))
    if layer is not None and not 1 <= layer <= facts.depth:
        raise InputError(f"There is no layer {layer}: these facts have 1 to {facts.depth}.")
    results = _of_stacks(choice.collapse, [exact_stack(facts)], layer=layer)
    return BoundsTable("", tuple(sorted(results, key=_order)))


def _of_stacks(
    named_bounds: Sequence[tuple[str, CollapseBound]],
    stacks: Sequence[CollapseStack],
    *,
    layer: int | None,
) -> list[BoundResult]:
    """Compare the bounds on rank collapse; those without a residual say so."""
    return [
        collapse_result(name, bound, stacks=stacks, layer=layer) for name, bound in named_bounds
    ]


def _of_attention(
    record: Record,
    named_bounds: Sequence[tuple[str, Bound]],
    *,
    layer: int | None,
    everything: bool,
) -> list[BoundResult]:
    """Compare the bounds on attention; unless `everything`, those whose quantity was measured."""
    sublayers = attention_sublayers(record)
    measured = {name: _measured(record, bound) for name, bound in named_bounds}
    if not everything:
        named_bounds = [(name, bound) for name, bound in named_bounds if measured[name][1]]
    if layer is not None:
        sublayers = [attention for attention in sublayers if attention.layer == layer]
    facts = facts_of(record, sublayers)
    return [
        BoundResult(
            name=name,
            title=bound.title,
            statement=bound.statement,
            source=bound.source,
            side=bound.side,
            quantity=bound.quantity,
            statistic=measured[name][0],
            rows=tuple(
                _row(attention, head, bound, measured[name][1], facts[attention.address, head])
                for attention, head in _places(sublayers, measured[name][1])
            ),
        )
        for name, bound in named_bounds
    ]


def has_attention(record: Record) -> bool:
    """Whether a record describes attention sublayers and holds what was measured there."""
    measured = (
        name
        for name, quantity in record.quantities.items()
        if quantity.topic == "attention" and not quantity.ingredient_of
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

    Such a quantity may be measured in some sublayers only; if it is in none, all are listed.
    """
    if readings.by_head:
        yield from ((attention, head) for attention in sublayers for head in attention.head_numbers)
        return
    addresses: set[SublayerAddress] = set()
    for attention in sublayers:
        if attention.address not in addresses and (
            not readings or readings.at(attention.address, None)
        ):
            addresses.add(attention.address)
            yield attention, None


def _row(
    attention: AttentionSublayer,
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
    reading = _extreme(readings.at(attention.address, head), largest=upper_bound)
    applies = not because
    measured = None if reading is None else reading.value
    return BoundAtHead(
        stack=attention.stack,
        layer=attention.layer,
        sublayer=attention.sublayer,
        point=attention.point,
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
    reasons = (
        condition.because or not_known(condition.assumption)
        for one in facts
        for condition in bound.conditions(one)
        if not condition.holds
    )
    return tuple(dict.fromkeys(reasons))


def _extreme(readings: Sequence[Reading], *, largest: bool) -> Reading | None:
    """Return the most telling of several readings (seeds); NaN comes before all others."""
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


def _no_such_layer(record: Record, layer: int) -> str:
    if has_attention(record):
        layers = [attention.layer for attention in attention_sublayers(record)]
        ends = min(layers), max(layers)
        return (
            f"Layer {layer} has no attention readings in this record; "
            f"layers {ends[0]} to {ends[1]} have some."
        )
    depth = max(record.depth(stack) for stack in record.stacks)
    what = "residuals" if has_collapse(record) else "readings"
    return f"Layer {layer} has no {what} in this record; layers 1 to {depth} have some."


def _order(result: BoundResult) -> tuple[object, ...]:
    """Violated first, then by family, then what applies, heads before whole layers.

    Among these upper bounds stand before lower ones and before laws, the tightest first; the two
    ends of a law of depth stand together.
    """
    closest = result.closest
    distance = 0.0 if closest is None else result.distance(closest)
    by_head = any(row.head is not None for row in result.rows)
    return (
        not result.violations,
        FAMILIES.index(result.family),
        not result.applying,
        not by_head,
        result.name if result.family == "depth" else "",
        ("upper", "lower", "law").index(result.side),
        -distance if result.side == "upper" else distance,
        result.name,
    )
