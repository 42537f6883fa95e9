"""Read from a record what theorems ask about: the numbers of every head on every input shape.

The provenance entry `attention` lists the attention sublayers that were measured, with their masks,
positions and the shapes of their inputs. The readings hold the ingredients (weights, biases,
scaling) and what was measured (column sums, spans of the logits).

A reading with a head is that head's; one without is every head's. Where the weights of a
projection were read and no bias was written, it has none: |b| = 0; the same for the shift of a
norm. A position bias whose range was not written has an infinite one. Of several readings of one
number (seeds) the largest stands, and its upper end where it has an interval: a bound may only
grow by it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, cast

from leadline.theory import AttentionFacts

if TYPE_CHECKING:
    from leadline.record import Reading, Record
    from leadline.theory.attention._bound import Mask, Positions

__all__ = [
    "AttentionSublayer",
    "HeadReadings",
    "InputShape",
    "SublayerAddress",
    "attention_sublayers",
    "facts_of",
    "head_readings",
]

SublayerAddress = tuple[str, int, int | None, str]
"""Stack, layer, sublayer, point."""


@dataclass(frozen=True, slots=True)
class InputShape:
    """The shape of some inputs; `allowed` is how many keys each query may see, empty: by the mask."""

    queries: int
    keys: int
    examples: int
    allowed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AttentionSublayer:
    """One attention that was measured, as the provenance describes it.

    Where a sublayer holds two of them, the heads of the second continue the count: `first_head`.
    `route` says how its matrix was obtained: "kernel" (recomputed) or "weights" (returned by the
    model). `loose` counts the certified intervals that are wide.
    """

    stack: str
    layer: int
    sublayer: int | None
    point: str
    module: str
    first_head: int
    heads: int
    groups: int
    width: int | None
    head_width: int | None
    mask: Mask
    positions: Positions
    stochastic: bool
    substochastic: bool
    qk_norm: bool
    route: str
    proof_eps: float | None
    loose: int
    shapes: tuple[InputShape, ...]

    @property
    def address(self) -> SublayerAddress:
        """Where its readings stand."""
        return self.stack, self.layer, self.sublayer, self.point

    @property
    def head_numbers(self) -> range:
        """The numbers of its heads."""
        return range(self.first_head, self.first_head + self.heads)


class HeadReadings:
    """The readings of one quantity and statistic, found by sublayer and head."""

    def __init__(self, readings: Sequence[Reading]) -> None:
        self._by_place: dict[tuple[SublayerAddress, int | None], list[Reading]] = {}
        for reading in readings:
            site = reading.site
            address = (site.stack, site.layer, site.sublayer, site.point)
            self._by_place.setdefault((address, site.head), []).append(reading)

    def __bool__(self) -> bool:
        return bool(self._by_place)

    def at(self, address: SublayerAddress, head: int | None) -> list[Reading]:
        """Return the readings of one head; None asks for those without a head."""
        return self._by_place.get((address, head), [])

    def heads(self, address: SublayerAddress) -> list[int]:
        """Return the heads that have readings there."""
        return sorted(
            head for place, head in self._by_place if place == address and head is not None
        )

    @property
    def by_head(self) -> bool:
        """Whether any reading belongs to a head."""
        return any(head is not None for _, head in self._by_place)

    def largest(self, address: SublayerAddress, head: int | None) -> float | None:
        """Return the upper end of the largest reading for a head, or over all heads for None."""
        readings = self.at(address, head) or self.at(address, None)
        if head is None and not readings:
            readings = [one for at in self.heads(address) for one in self.at(address, at)]
        ends = [one.value if one.upper is None else one.upper for one in readings]
        if any(math.isnan(end) for end in ends):
            return math.nan
        return max(ends, default=None)


def attention_sublayers(record: Record) -> list[AttentionSublayer]:
    """Return the attentions that a record describes, in the order of the model."""
    entries = record.provenance.get("attention")
    if not isinstance(entries, list):
        return []
    return [
        _sublayer(cast("Mapping[str, Any]", one))
        for one in cast("list[object]", entries)
        if isinstance(one, Mapping)
    ]


def facts_of(
    record: Record, sublayers: Sequence[AttentionSublayer]
) -> dict[tuple[SublayerAddress, int | None], tuple[AttentionFacts, ...]]:
    """Return the facts of every sublayer and head, one for each shape of its input.

    The head None has those of a whole sublayer: the largest number over its heads.
    """
    ingredients = _HeadIngredients(record)
    facts_by_head: dict[tuple[SublayerAddress, int | None], tuple[AttentionFacts, ...]] = {}
    for attention in sublayers:
        for head in (None, *attention.head_numbers):
            facts = _per_shape(_facts(attention, head, ingredients), attention.shapes)
            facts_by_head[attention.address, head] = (
                facts_by_head.get((attention.address, head), ()) + facts
            )
    return facts_by_head


def head_readings(record: Record, quantity: str, statistic: str) -> HeadReadings:
    """Read one statistic of one quantity: of the first run, at its last step."""
    if quantity not in record:
        return HeadReadings([])
    readings = record.select(quantity, statistic=statistic)
    readings = [one for one in readings if one.run == readings[0].run]
    last = max((one.step for one in readings), default=0)
    return HeadReadings([one for one in readings if one.step == last])


class _HeadIngredients:
    """Looks up the numbers that facts are made of."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._readings: dict[tuple[str, str], HeadReadings] = {}

    def __call__(
        self, name: str, attention: AttentionSublayer, head: int | None, *, statistic: str = "value"
    ) -> float | None:
        key = name, statistic
        if key not in self._readings:
            self._readings[key] = head_readings(self._record, f"attention.{name}", statistic)
        return self._readings[key].largest(attention.address, head)


def _per_shape(facts: AttentionFacts, shapes: Sequence[InputShape]) -> tuple[AttentionFacts, ...]:
    return tuple(
        replace(facts, queries=shape.queries, keys=shape.keys, allowed=shape.allowed)
        for shape in shapes
    )


def _facts(
    attention: AttentionSublayer, head: int | None, ingredient: _HeadIngredients
) -> AttentionFacts:
    """Return what is the same for every shape."""
    gain = ingredient("norm_gain", attention, head)
    query_weight = ingredient("query_weight", attention, head)
    key_weight = ingredient("key_weight", attention, head)
    bias_range = ingredient("bias_range", attention, head)
    if bias_range is None:
        bias_range = math.inf if attention.positions == "bias" else 0.0
    return AttentionFacts(
        queries=0,
        keys=0,
        mask=attention.mask,
        stochastic=attention.stochastic,
        substochastic=attention.substochastic,
        positions=attention.positions,
        bias_range=bias_range,
        scaling=ingredient("scaling", attention, head),
        soft_cap=ingredient("soft_cap", attention, head),
        head_width=attention.head_width,
        width=attention.width,
        gain=gain,
        shift=_zero_without(gain, ingredient("norm_shift", attention, head)),
        query_weight=query_weight,
        key_weight=key_weight,
        query_bias=_zero_without(query_weight, ingredient("query_bias", attention, head)),
        key_bias=_zero_without(key_weight, ingredient("key_bias", attention, head)),
        query_radius=ingredient("query_radius", attention, head),
        key_radius=ingredient("key_radius", attention, head),
        column_sum=ingredient("column_sum", attention, head, statistic="max"),
        logit_span=ingredient("logit_span", attention, head, statistic="max"),
        shared_input=attention.point != "cross-attention",
    )


def _zero_without(number: float | None, companion: float | None) -> float | None:
    """Return the companion of a number, such as its bias; 0 where the record has the number alone."""
    return 0.0 if companion is None and number is not None else companion


def _sublayer(entry: Mapping[str, Any]) -> AttentionSublayer:
    mask, positions = entry.get("mask"), entry.get("positions")
    return AttentionSublayer(
        stack=str(entry.get("stack", "")),
        layer=int(entry.get("layer", 0)),
        sublayer=_optional_int(entry.get("sublayer")),
        point=str(entry.get("point", "attention")),
        module=str(entry.get("module", "")),
        first_head=int(entry.get("first_head", 1)),
        heads=int(entry.get("heads", 0)),
        groups=int(entry.get("groups", entry.get("heads", 0))),
        width=_optional_int(entry.get("width")),
        head_width=_optional_int(entry.get("head_width")),
        mask=mask if mask in ("none", "causal") else "other",
        positions=positions if positions in ("none", "rotary", "bias") else "unknown",
        stochastic=bool(entry.get("stochastic", True)),
        substochastic=bool(entry.get("substochastic", True)),
        qk_norm=bool(entry.get("qk_norm", False)),
        route=str(entry.get("seen", "")),
        proof_eps=None if entry.get("proof_eps") is None else float(entry["proof_eps"]),
        loose=int(entry.get("loose", 0)),
        shapes=tuple(_shape(one) for one in entry.get("shapes", ())),
    )


def _shape(entry: Mapping[str, Any]) -> InputShape:
    return InputShape(
        queries=int(entry["queries"]),
        keys=int(entry["keys"]),
        examples=int(entry.get("examples", 1)),
        allowed=tuple(_run_lengths(entry.get("allowed") or ())),
    )


def _run_lengths(pairs: Sequence[Sequence[int]]) -> Iterator[int]:
    """Read pairs of a count and how many rows in turn have it."""
    return chain.from_iterable(repeat(int(count), int(times)) for count, times in pairs)


def _optional_int(value: object) -> int | None:
    return None if value is None else int(cast("float", value))
