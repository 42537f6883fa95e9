"""The lines that the chart of attention and its bounds draws, read from a record and a table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leadline.reading.bounds.attention_facts import attention_sublayers
from leadline.reading.bounds.text import reasons_of
from leadline.reading.show.wording import number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadline.reading.bounds.attention_facts import AttentionSublayer, HeadReadings
    from leadline.reading.bounds.table import BoundAtHead, BoundResult
    from leadline.record import Reading, Record

__all__ = [
    "AttentionPlace",
    "PointsOfLine",
    "attention_places",
    "head_edge",
    "head_mean",
    "largest_reading",
    "number_range",
    "power",
    "power_range",
    "predicted_line",
]


@dataclass(frozen=True, slots=True)
class AttentionPlace:
    """The attention sublayers of one role of a stack, in the order of the layers."""

    title: str
    sublayers: tuple[AttentionSublayer, ...]
    depth: int

    @property
    def queries(self) -> int:
        """The largest number of queries of an input."""
        return max((s.queries for attention in self.sublayers for s in attention.shapes), default=1)

    def rows(self, bound: BoundResult) -> list[BoundAtHead]:
        """Return the rows of a bound that stand here."""
        here = {attention.address for attention in self.sublayers}
        return [
            row for row in bound.rows if (row.stack, row.layer, row.sublayer, row.point) in here
        ]


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """One value of a line. `below` and `above` are how far its certified interval reaches."""

    layer: int
    value: float
    note: str
    below: float = 0.0
    above: float = 0.0


PointsOfLine = list[ChartPoint]


def attention_places(record: Record) -> list[AttentionPlace]:
    """Group the attention sublayers of a record by stack and role.

    Where a block has two of one role they are told apart by their number.
    """
    sublayers = attention_sublayers(record)
    crowded = {
        (one.stack, one.point)
        for one in sublayers
        for other in sublayers
        if (one.stack, one.point, one.layer) == (other.stack, other.point, other.layer)
        and one.sublayer != other.sublayer
    }
    groups: dict[tuple[str, str, int | None], list[AttentionSublayer]] = {}
    for one in {one.address: one for one in sublayers}.values():
        apart = one.sublayer if (one.stack, one.point) in crowded else None
        groups.setdefault((one.stack, one.point, apart), []).append(one)
    return [
        AttentionPlace(
            title=f"{stack}, {point}" + ("" if apart is None else f" (write {apart})"),
            sublayers=tuple(sorted(members, key=lambda member: member.layer)),
            depth=record.depth(stack) if stack in record.stacks else members[-1].layer,
        )
        for (stack, point, apart), members in groups.items()
    ]


def head_mean(readings: HeadReadings, place: AttentionPlace) -> PointsOfLine:
    """Return the summary over the heads; their mean where the record has none."""
    line: PointsOfLine = []
    for attention in place.sublayers:
        layer_readings = readings.at(attention.address, None) or _readings_of_heads(
            readings, attention
        )
        if layer_readings:
            value = math.fsum(one.value for one in layer_readings) / len(layer_readings)
            line.append(ChartPoint(attention.layer, value, attention.module))
    return line


def head_edge(readings: HeadReadings, place: AttentionPlace, *, smallest: bool) -> PointsOfLine:
    """Return the smallest or the largest head of every layer."""
    line: PointsOfLine = []
    for attention in place.sublayers:
        layer_readings = [
            one for one in _readings_of_heads(readings, attention) if not math.isnan(one.value)
        ]
        if layer_readings:
            edge = (min if smallest else max)(layer_readings, key=lambda one: one.value)
            line.append(ChartPoint(attention.layer, edge.value, f"head {edge.site.head}"))
    return line


def largest_reading(readings: HeadReadings, place: AttentionPlace) -> PointsOfLine:
    """Return the largest reading of every layer, with its certified interval."""
    line: PointsOfLine = []
    for attention in place.sublayers:
        layer_readings = _readings_of_heads(readings, attention) or readings.at(
            attention.address, None
        )
        layer_readings = [one for one in layer_readings if not math.isnan(one.value)]
        if layer_readings:
            line.append(_with_interval(max(layer_readings, key=lambda one: one.value), attention))
    return line


def predicted_line(bound: BoundResult, rows: Iterable[BoundAtHead]) -> PointsOfLine:
    """Return what a bound predicts at each layer: the largest over its heads.

    A lower bound has its smallest. Where it applies to some heads only, these count. The note
    says whether it applies.
    """
    layers: dict[int, list[tuple[float, BoundAtHead]]] = {}
    for row in rows:
        if row.predicted is not None:
            layers.setdefault(row.layer, []).append((row.predicted, row))
    line: PointsOfLine = []
    for layer, here in sorted(layers.items()):
        counting = [pair for pair in here if pair[1].applies] or here
        best = max if bound.side == "upper" else min
        value, chosen = best(counting, key=lambda pair: pair[0])
        line.append(ChartPoint(layer, value, _applies_note(chosen, [row for _, row in here])))
    return line


def number_range(values: Iterable[float]) -> str:
    """Write the lowest and the highest of the numbers, once where they read the same."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return "NaN"
    low, high = number(min(known)), number(max(known))
    return low if low == high else f"{low} to {high}"


def power(value: float) -> str:
    """Write a number that is given by its log10: 33.9, 0, or a power such as 10^{−545067}."""
    if math.isnan(value) or value == math.inf:
        return number(value)
    if value == -math.inf:
        return "0"
    return number(10.0**value) if -3 <= value < 5 else f"10^{{{_exponent(value)}}}"


def power_range(values: Iterable[float]) -> str:
    """Write the lowest and the highest of numbers that are given by their log10."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return "NaN"
    low, high = power(min(known)), power(max(known))
    return low if low == high else f"{low} to {high}"


def _exponent(value: float) -> str:
    """Write an exponent in plain digits: raised signs of a power of ten cannot be raised again."""
    size = abs(value)
    text = f"{size:.1f}" if size < 1e6 else f"{size:.2e}".replace("e+", "e")
    return f"−{text}" if value < 0 else text


def _readings_of_heads(readings: HeadReadings, attention: AttentionSublayer) -> list[Reading]:
    heads = readings.heads(attention.address)
    return [one for head in heads for one in readings.at(attention.address, head)]


def _with_interval(top: Reading, attention: AttentionSublayer) -> ChartPoint:
    who = attention.module if top.site.head is None else f"head {top.site.head}"
    if top.lower is None or top.upper is None:
        return ChartPoint(attention.layer, top.value, who)
    ends = f"{number(top.lower, digits=7)} and {number(top.upper, digits=7)}"
    return ChartPoint(
        attention.layer,
        top.value,
        f"{who}, certified between {ends}",
        below=max(0.0, top.value - top.lower),
        above=max(0.0, top.upper - top.value),
    )


def _applies_note(chosen: BoundAtHead, here: list[BoundAtHead]) -> str:
    who = "" if chosen.head is None else f"head {chosen.head}; "
    failing = [row for row in here if not row.applies]
    if not failing:
        return f"{who}applies"
    where = "" if len(failing) == len(here) else f" at {len(failing)} of {len(here)} heads"
    return f"{who}does not apply{where}: {'; '.join(reasons_of(failing, counted=False))}"
