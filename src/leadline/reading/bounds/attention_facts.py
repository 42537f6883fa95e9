"""From a record to what theorems ask about: the numbers of every head on every shape of input.

The provenance entry `attention` says which attention sublayers were seen, with their masks, their
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
    "Address",
    "AttentionSublayer",
    "HeadReadings",
    "Shape",
    "attention_sublayers",
    "facts_of",
    "head_readings",
]

Address = tuple[str, int, int | None, str]
"""Stack, layer, sublayer, point."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Inputs of one shape; `allowed` says how many keys each query may see, empty: see the mask."""

    queries: int
    keys: int
    examples: int
    allowed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AttentionSublayer:
    """One attention that was seen, as the provenance tells of it.

    Where a sublayer holds two of them, the heads of the second go on counting: `first_head`.
    `loose` counts the certified intervals that are wide.
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
    seen: str
    proof_eps: float | None
    loose: int
    shapes: tuple[Shape, ...]

    @property
    def address(self) -> Address:
        """Where its readings stand."""
        return self.stack, self.layer, self.sublayer, self.point

    @property
    def head_numbers(self) -> range:
        """The numbers of its heads."""
        return range(self.first_head, self.first_head + self.heads)


class HeadReadings:
    """The readings of one quantity and statistic, found by sublayer and head."""

    def __init__(self, readings: Sequence[Reading]) -> None:
        self._found: dict[tuple[Address, int | None], list[Reading]] = {}
        for reading in readings:
            site = reading.site
            address = (site.stack, site.layer, site.sublayer, site.point)
            self._found.setdefault((address, site.head), []).append(reading)

    def __bool__(self) -> bool:
        return bool(self._found)

    def at(self, address: Address, head: int | None) -> list[Reading]:
        """Return the readings of one head; None asks for those without a head."""
        return self._found.get((address, head), [])

    def heads(self, address: Address) -> list[int]:
        """Return the heads that have readings there."""
        return sorted(head for place, head in self._found if place == address and head is not None)

    @property
    def by_head(self) -> bool:
        """Whether any reading belongs to a head."""
        return any(head is not None for _, head in self._found)

    def largest(self, address: Address, head: int | None) -> float | None:
        """Return the upper end of the largest reading for a head, or over all heads for None."""
        found = self.at(address, head) or self.at(address, None)
        if head is None and not found:
            found = [one for at in self.heads(address) for one in self.at(address, at)]
        ends = [one.value if one.upper is None else one.upper for one in found]
        if any(math.isnan(end) for end in ends):
            return math.nan
        return max(ends, default=None)


def attention_sublayers(record: Record) -> list[AttentionSublayer]:
    """Return the attentions that a record tells of, in the order of the model."""
    told = record.provenance.get("attention")
    if not isinstance(told, list):
        return []
    return [
        _sublayer(cast("Mapping[str, Any]", one))
        for one in cast("list[object]", told)
        if isinstance(one, Mapping)
    ]


def facts_of(
    record: Record, sublayers: Sequence[AttentionSublayer]
) -> dict[tuple[Address, int | None], tuple[AttentionFacts, ...]]:
    """Return the facts of every sublayer and head, one for each shape of its input.

    Under the head None stand those of a whole sublayer: the largest number over its heads.
    """
    ingredients = _Ingredients(record)
    found: dict[tuple[Address, int | None], tuple[AttentionFacts, ...]] = {}
    for seen in sublayers:
        for head in (None, *seen.head_numbers):
            facts = _per_shape(_facts(seen, head, ingredients), seen.shapes)
            found[seen.address, head] = found.get((seen.address, head), ()) + facts
    return found


def head_readings(record: Record, quantity: str, statistic: str) -> HeadReadings:
    """Read one statistic of one quantity: of the first run, at its last step."""
    if quantity not in record:
        return HeadReadings([])
    readings = record.select(quantity, statistic=statistic)
    readings = [one for one in readings if one.run == readings[0].run]
    last = max((one.step for one in readings), default=0)
    return HeadReadings([one for one in readings if one.step == last])


class _Ingredients:
    """Looks up the numbers that facts are made of."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._read: dict[tuple[str, str], HeadReadings] = {}

    def __call__(
        self, name: str, seen: AttentionSublayer, head: int | None, *, statistic: str = "value"
    ) -> float | None:
        key = name, statistic
        if key not in self._read:
            self._read[key] = head_readings(self._record, f"attention.{name}", statistic)
        return self._read[key].largest(seen.address, head)


def _per_shape(facts: AttentionFacts, shapes: Sequence[Shape]) -> tuple[AttentionFacts, ...]:
    return tuple(
        replace(facts, queries=shape.queries, keys=shape.keys, allowed=shape.allowed)
        for shape in shapes
    )


def _facts(seen: AttentionSublayer, head: int | None, ingredient: _Ingredients) -> AttentionFacts:
    """Return what is the same for every shape."""
    gain = ingredient("norm_gain", seen, head)
    query_weight = ingredient("query_weight", seen, head)
    key_weight = ingredient("key_weight", seen, head)
    bias_range = ingredient("bias_range", seen, head)
    if bias_range is None:
        bias_range = math.inf if seen.positions == "bias" else 0.0
    return AttentionFacts(
        queries=0,
        keys=0,
        mask=seen.mask,
        stochastic=seen.stochastic,
        substochastic=seen.substochastic,
        positions=seen.positions,
        bias_range=bias_range,
        scaling=ingredient("scaling", seen, head),
        soft_cap=ingredient("soft_cap", seen, head),
        head_width=seen.head_width,
        width=seen.width,
        gain=gain,
        shift=_zero_without(gain, ingredient("norm_shift", seen, head)),
        query_weight=query_weight,
        key_weight=key_weight,
        query_bias=_zero_without(query_weight, ingredient("query_bias", seen, head)),
        key_bias=_zero_without(key_weight, ingredient("key_bias", seen, head)),
        query_radius=ingredient("query_radius", seen, head),
        key_radius=ingredient("key_radius", seen, head),
        column_sum=ingredient("column_sum", seen, head, statistic="max"),
        logit_span=ingredient("logit_span", seen, head, statistic="max"),
        shared_input=seen.point != "cross-attention",
    )


def _zero_without(read: float | None, companion: float | None) -> float | None:
    """A companion of a number that was read, such as its bias, is 0 where none was written."""
    return 0.0 if companion is None and read is not None else companion


def _sublayer(told: Mapping[str, Any]) -> AttentionSublayer:
    mask, positions = told.get("mask"), told.get("positions")
    return AttentionSublayer(
        stack=str(told.get("stack", "")),
        layer=int(told.get("layer", 0)),
        sublayer=_whole(told.get("sublayer")),
        point=str(told.get("point", "attention")),
        module=str(told.get("module", "")),
        first_head=int(told.get("first_head", 1)),
        heads=int(told.get("heads", 0)),
        groups=int(told.get("groups", told.get("heads", 0))),
        width=_whole(told.get("width")),
        head_width=_whole(told.get("head_width")),
        mask=mask if mask in ("none", "causal") else "other",
        positions=positions if positions in ("none", "rotary", "bias") else "unknown",
        stochastic=bool(told.get("stochastic", True)),
        substochastic=bool(told.get("substochastic", True)),
        qk_norm=bool(told.get("qk_norm", False)),
        seen=str(told.get("seen", "")),
        proof_eps=None if told.get("proof_eps") is None else float(told["proof_eps"]),
        loose=int(told.get("loose", 0)),
        shapes=tuple(_shape(one) for one in told.get("shapes", ())),
    )


def _shape(told: Mapping[str, Any]) -> Shape:
    return Shape(
        queries=int(told["queries"]),
        keys=int(told["keys"]),
        examples=int(told.get("examples", 1)),
        allowed=tuple(_run_lengths(told.get("allowed") or ())),
    )


def _run_lengths(pairs: Sequence[Sequence[int]]) -> Iterator[int]:
    """Read pairs of a count and how many rows in turn have it."""
    return chain.from_iterable(repeat(int(count), int(times)) for count, times in pairs)


def _whole(value: object) -> int | None:
    return None if value is None else int(cast("float", value))
