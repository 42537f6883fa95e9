"""Read from a record what theorems on rank collapse ask about: `StackFacts` of every stack.

The probe `residual` writes the residuals of the stream, the probe `collapse` the numbers of the
weights and patterns. The provenance entries `anatomy` (what every write keeps, where norms stand)
and `attention` (masks, positions, shapes) have the rest.

A bound is about one example. So the largest residual over the examples is read where the record
has it; a mean over several examples is no residual of any of them, and the cubic bounds do not
apply to it (the mean of cubes is above the cube of the mean). Ingredients are the largest over the
examples, and their upper end where they have an interval, as are the composite residuals from
which bounds start: a bound may only grow by it.

What is said of the residual after layer l depends on the layers up to l alone. So there are facts
for every depth: a layer whose weights were not found leaves what comes before it as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from leadline.reading.bounds.attention_facts import HeadReadings, attention_sublayers, head_readings
from leadline.reading.bounds.rank_collapse.residuals import (
    RESIDUALS,
    STATISTICS,
    Residual,
    ResidualLine,
    why_missing,
)
from leadline.record.provenance import number_at, value_at
from leadline.theory import LayerFacts, StackFacts

if TYPE_CHECKING:
    from leadline.reading.bounds.attention_facts import AttentionSublayer, SublayerAddress
    from leadline.record import Record
    from leadline.theory.rank_collapse._facts import Mask
    from leadline.theory.rank_collapse.bound import Measure

__all__ = ["CollapsePrefix", "CollapseStack", "collapse_stacks", "has_collapse"]

NO_ANATOMY = "the record does not say what the layers keep and where norms stand"
_SMALLEST = ("min", "value")


@dataclass(frozen=True, slots=True)
class CollapsePrefix:
    """The facts of the first layers of a stack.

    `remarks` say why no statement can be said to apply, `attention_remarks` why none about
    attention can.
    """

    facts: StackFacts
    remarks: tuple[str, ...] = ()
    attention_remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CollapseStack:
    """A stack: facts for the depths 1, 2, ..., and its residuals at the sites 0, 1, 2, ...

    `statistics` say which value over the examples was read, `averaged` why a value is that of no
    single example.
    """

    name: str
    prefixes: tuple[CollapsePrefix, ...]
    residuals: Mapping[Measure, tuple[Residual | None, ...]]
    statistics: Mapping[Measure, str] = field(default_factory=dict["Measure", str])
    averaged: Mapping[Measure, str] = field(default_factory=dict["Measure", str])

    missing: Mapping[Measure, str] = field(default_factory=dict["Measure", str])
    """Why there are no residuals of a measure."""


def has_collapse(record: Record) -> bool:
    """Whether a record holds what the probes `residual` or `collapse` write, or exact facts."""
    if record.instrument == "collapse":
        return value_at(record.provenance, "instrument", "facts") is not None
    written = {RESIDUALS["composite"], RESIDUALS["smallest"]}
    return any(
        (name in written or name.startswith("collapse.")) and bool(record.select(name))
        for name in record.quantities
    )


def collapse_stacks(record: Record) -> list[CollapseStack]:
    """Return the stacks of a record that have residuals or ingredients."""
    lines: dict[Measure, ResidualLine] = {
        measure: ResidualLine(record, quantity) for measure, quantity in RESIDUALS.items()
    }
    ingredients = {
        one.site.stack
        for name in record.quantities
        if name.startswith("collapse.")
        for one in record.select(name)
    }
    return [
        _stack(record, name, lines)
        for name in record.stacks
        if name in ingredients
        or any(line.at(name, 0) or line.at(name, 1) for line in lines.values())
    ]


def _stack(record: Record, name: str, lines: Mapping[Measure, ResidualLine]) -> CollapseStack:
    depth = record.depth(name)
    residuals: dict[Measure, tuple[Residual | None, ...]] = {
        measure: line.residuals(name, depth) for measure, line in lines.items()
    }
    return CollapseStack(
        name=name,
        prefixes=_prefixes(record, name, depth, residuals),
        residuals=residuals,
        statistics={measure: line.statistic for measure, line in lines.items()},
        averaged=_averaged(record, lines),
        missing={
            measure: why_missing(record, RESIDUALS[measure])
            for measure, values in residuals.items()
            if not any(values)
        },
    )


def _prefixes(
    record: Record,
    name: str,
    depth: int,
    residuals: Mapping[Measure, tuple[Residual | None, ...]],
) -> tuple[CollapsePrefix, ...]:
    ingredients = _LayerIngredients(record)
    blocks = _blocks(record, name)
    sublayers = [one for one in attention_sublayers(record) if one.stack == name]
    entries = [one for one in _attention_entries(record) if one.get("stack") == name]
    layers = [
        _layer(ingredients, name, at, _writes(blocks.get(at, {}))) for at in range(1, depth + 1)
    ]
    capped = ingredients.layers_of("attention.soft_cap", name)
    longest = number_at(record.provenance, "input", "longest")
    prefixes: list[CollapsePrefix] = []
    for upto in range(1, depth + 1):
        here = [blocks[at] for at in sorted(blocks) if at <= upto]
        attention = [one for one in sublayers if one.layer <= upto]
        altered = any(one.get("altered") for one in entries if int(one.get("layer", 0)) <= upto)
        facts = _facts(here, attention, tokens=0 if longest is None else int(longest))
        facts = replace(
            facts,
            layers=tuple(layers[:upto]),
            layered=facts.layered and len(here) == upto,
            plain=facts.plain and not any(at <= upto for at in capped),
            log10_composite=_upper_ends(residuals["composite"][: upto + 1]),
            log10_smallest=_upper_ends(residuals["smallest"][: upto + 1]),
            log10_frobenius=tuple(
                math.nan if one is None else one.value for one in residuals["frobenius"][: upto + 1]
            ),
        )
        remarks = () if len(here) == upto else (NO_ANATOMY,)
        prefixes.append(
            CollapsePrefix(facts, remarks, _attention_remarks(here, attention, altered=altered))
        )
    return tuple(prefixes)


def _facts(
    blocks: Sequence[Mapping[str, Any]], sublayers: Sequence[AttentionSublayer], *, tokens: int
) -> StackFacts:
    """Return what anatomy and attention tell of some layers."""
    writes = [write for block in blocks for write in _writes(block)]
    opened = any(block.get("opening") for block in blocks)
    settled = any(write.get("settle") for write in writes)
    keeps_all = all(write.get("keep") == 1.0 for write in writes)
    lengths = [shape.queries for one in sublayers for shape in one.shapes]
    return StackFacts(
        tokens=max(lengths, default=tokens),
        layers=(),
        mask=_mask(sublayers),
        skip=any(write.get("keep") != 0.0 for write in writes),
        keep=1.0 if writes and keeps_all and not settled and not opened else 0.0,
        layered=all(_layered(block) for block in blocks),
        norm=opened or settled or any(write.get("placement") != "none" for write in writes),
        turned=_turned(sublayers),
        plain=not any(one.qk_norm for one in sublayers),
        stochastic=all(one.stochastic for one in sublayers),
    )


def _upper_ends(residuals: Sequence[Residual | None]) -> tuple[float, ...]:
    return tuple(
        math.nan if one is None else one.value if one.upper is None else one.upper
        for one in residuals
    )


class _LayerIngredients:
    """Looks up the numbers that the facts of a layer are made of."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._entries = _attention_entries(record)
        self._readings: dict[tuple[str, tuple[str, ...]], HeadReadings] = {}

    def __call__(self, quantity: str, statistics: tuple[str, ...] = STATISTICS) -> HeadReadings:
        """Return the readings of the first statistic there is."""
        key = quantity, statistics
        if key not in self._readings:
            candidates = (head_readings(self._record, quantity, one) for one in statistics)
            self._readings[key] = next((one for one in candidates if one), HeadReadings([]))
        return self._readings[key]

    def layers_of(self, quantity: str, stack: str) -> set[int]:
        """Return the layers of a stack that have a reading of it."""
        known = self._record.select(quantity) if quantity in self._record else []
        return {one.site.layer for one in known if one.site.stack == stack}

    def scaling(self, address: SublayerAddress) -> float | None:
        """Return what multiplies the logits, from the provenance or from readings of `attention`."""
        for one in self._entries:
            place = one.get("stack"), one.get("layer"), one.get("sublayer"), one.get("point")
            if place == address and one.get("scaling") is not None:
                return float(one["scaling"])
        return self.largest("attention.scaling", address)

    def per_head(self, quantity: str, address: SublayerAddress) -> tuple[float, ...]:
        readings = self(quantity)
        values = [readings.largest(address, head) for head in readings.heads(address)]
        return tuple(one for one in values if one is not None)

    def largest(self, quantity: str, address: SublayerAddress) -> float | None:
        return self(quantity).largest(address, None)

    def smallest(self, quantity: str, address: SublayerAddress) -> float | None:
        readings = self(quantity, _SMALLEST).at(address, None)
        ends = [one.value if one.lower is None else one.lower for one in readings]
        return math.nan if any(math.isnan(end) for end in ends) else min(ends, default=None)


def _layer(
    ingredients: _LayerIngredients, stack: str, layer: int, writes: Sequence[Mapping[str, Any]]
) -> LayerFacts:
    places: list[SublayerAddress] = [
        (stack, layer, int(write.get("sublayer", 0)), str(write.get("role", "")))
        for write in writes
    ]
    attention = [place for place in places if place[3] == "attention"]
    others = [place for place in places if place[3] != "attention"]
    at: SublayerAddress = attention[0] if len(attention) == 1 else (stack, layer, None, "")
    factors = [ingredients.largest("collapse.lipschitz", place) for place in others]
    return LayerFacts(
        query_key=ingredients.per_head("collapse.query_key", at),
        value_output_1=ingredients.per_head("collapse.value_output_1", at),
        value_output_inf=ingredients.per_head("collapse.value_output_inf", at),
        scaling=ingredients.scaling(at),
        gamma=ingredients.per_head("collapse.gamma", at),
        joint_gamma=ingredients.largest("collapse.joint_gamma", at),
        lipschitz=None if None in factors else math.prod(one for one in factors if one is not None),
        alignment=_edge(
            [ingredients.smallest("collapse.alignment", place) for place in places], min
        ),
        overlap=_edge([ingredients.largest("collapse.overlap", place) for place in places], max),
        diagonal=ingredients.largest("collapse.diagonal", at),
        value_gain=ingredients.largest("collapse.value_gain", at),
        cubic_law=ingredients.largest("collapse.cubic_law", at),
    )


def _edge(values: Sequence[float | None], best: Any) -> float | None:
    """Return the smallest or largest over the writes; None where one of them has no number."""
    known = [one for one in values if one is not None]
    return float(best(known)) if known and len(known) == len(values) else None


def _attention_entries(record: Record) -> list[Mapping[str, Any]]:
    entries = cast("Sequence[object]", record.provenance.get("attention") or ())
    return [cast("Mapping[str, Any]", one) for one in entries if isinstance(one, Mapping)]


def _blocks(record: Record, stack: str) -> dict[int, Mapping[str, Any]]:
    layers = value_at(record.provenance, "anatomy", "layers")
    if not isinstance(layers, list):
        return {}
    blocks = [cast("Mapping[str, Any]", one) for one in cast("list[object]", layers)]
    return {int(one["layer"]): one for one in blocks if one.get("stack") == stack}


def _writes(block: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(cast("Sequence[Mapping[str, Any]]", block.get("sublayers") or ()))


def _layered(block: Mapping[str, Any]) -> bool:
    writes = _writes(block)
    roles = [write.get("role") for write in writes]
    alone = not any(write.get("parallel") for write in writes)
    return alone and roles in (["attention"], ["attention", "mlp"])


def _turned(sublayers: Sequence[AttentionSublayer]) -> bool | None:
    """Whether positions enter the logits; None where that was not found."""
    positions = {one.positions for one in sublayers}
    if positions - {"none", "unknown"}:
        return True
    return None if "unknown" in positions else False


def _mask(sublayers: Sequence[AttentionSublayer]) -> Mask:
    first: Mask = sublayers[0].mask if sublayers else "other"
    return first if all(one.mask == first for one in sublayers) else "other"


def _averaged(record: Record, lines: Mapping[Measure, ResidualLine]) -> dict[Measure, str]:
    """Say of which residuals the record has a mean over several examples."""
    examples = number_at(record.provenance, "input", "examples")
    if examples == 1:
        return {}
    many = "examples" if examples is None else f"{int(examples)} examples"
    remark = f"the residual is a mean over {many}, and the statement is about one"
    return {measure: remark for measure, line in lines.items() if line.statistic == "mean"}


def _attention_remarks(
    blocks: Sequence[Mapping[str, Any]], sublayers: Sequence[AttentionSublayer], *, altered: bool
) -> tuple[str, ...]:
    """Say what keeps the attention of some layers from being known."""
    if altered:
        return ("attention weights are changed after the softmax",)
    addresses = [one.address for one in sublayers]
    if len(addresses) != len(set(addresses)):
        return ("a sublayer runs attention more than once",)
    writes = [(block.get("layer"), write) for block in blocks for write in _writes(block)]
    wanted = {(layer, w.get("sublayer")) for layer, w in writes if w.get("role") == "attention"}
    count = len(wanted - {(one.layer, one.sublayer) for one in sublayers})
    return (f"attention was not seen in {count} of {len(blocks)} layers",) if count else ()
