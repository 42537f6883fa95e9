"""Facts of stacks whose residuals are right far below rounding, as `leadline.collapse` finds them.

A record of `collapse` holds them as rows: the numbers of a layer under `collapse.` and the name of
the field of `LayerFacts`, per example; the logarithms of the residuals per site. What no row can
hold, such as the mask, stands in the provenance. Every example is a stack of its own here, because
the theorems are about one example.

Exact facts are judged as they are; of the smallest residual, of which they hold an upper estimate,
by the composite residual about the mean over 2 (1 - 1/n), which is never above it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, cast

from leadline.reading.bounds.rank_collapse.facts import CollapsePrefix, CollapseStack
from leadline.reading.bounds.rank_collapse.residuals import Residual
from leadline.record.provenance import value_at
from leadline.theory import LayerFacts, StackFacts

if TYPE_CHECKING:
    from leadline.record import Reading, Record
    from leadline.theory.rank_collapse.bound import Measure

__all__ = ["OF_HEADS", "RESIDUAL_ROWS", "exact_facts", "exact_stack", "exact_stacks"]

OF_HEADS = ("query_key", "value_output_1", "value_output_inf", "gamma")
"""The fields of `LayerFacts` with one number per head."""
RESIDUAL_ROWS = {
    "log10_composite": "collapse.log10_composite_residual",
    "log10_smallest": "collapse.log10_smallest_composite_residual",
    "log10_frobenius": "collapse.log10_residual",
}
"""The quantity that holds each residual of `StackFacts`."""


def exact_facts(record: Record) -> list[StackFacts]:
    """Return the facts of every example; none where the record was written without facts."""
    entries = value_at(record.provenance, "instrument", "facts")
    if not isinstance(entries, list):
        return []
    rows = _FactRows(record)
    return [
        rows.facts(cast("Mapping[str, Any]", entry), example)
        for example, entry in enumerate(cast("list[object]", entries), start=1)
    ]


def exact_stacks(record: Record) -> list[CollapseStack]:
    """Return every example of a record of `collapse` as a stack of its own."""
    facts = exact_facts(record)
    name = record.stacks[0] if record.stacks else "stack"
    names = (
        [name] if len(facts) == 1 else [f"{name}, example {n}" for n in range(1, len(facts) + 1)]
    )
    return [exact_stack(one, name=label) for one, label in zip(facts, names, strict=True)]


class _FactRows:
    """The rows of a record that facts are made of, by quantity, example and layer."""

    def __init__(self, record: Record) -> None:
        names = [
            *(f"collapse.{one.name}" for one in fields(LayerFacts)),
            *RESIDUAL_ROWS.values(),
        ]
        self._rows: dict[tuple[str, int, int], list[Reading]] = {}
        for name in names:
            for row in record.select(name) if name in record else []:
                if row.site.example is not None:
                    key = name, row.site.example, row.site.layer
                    self._rows.setdefault(key, []).append(row)

    def facts(self, entry: Mapping[str, Any], example: int) -> StackFacts:
        rest = dict(entry)
        depth = int(rest.pop("depth"))
        for field, name in RESIDUAL_ROWS.items():
            rest[field] = self._along(name, example, depth)
        layers = tuple(self._layer(example, layer) for layer in range(1, depth + 1))
        return StackFacts(layers=layers, **rest)

    def _along(self, name: str, example: int, depth: int) -> tuple[float, ...]:
        sites = [self._rows.get((name, example, layer), []) for layer in range(depth + 1)]
        return tuple(row.value for rows in sites for row in rows)

    def _layer(self, example: int, layer: int) -> LayerFacts:
        numbers: dict[str, Any] = {}
        for field in fields(LayerFacts):
            rows = self._rows.get((f"collapse.{field.name}", example, layer), [])
            if field.name in OF_HEADS:
                ordered = sorted(rows, key=lambda row: row.site.head or 0)
                numbers[field.name] = tuple(row.value for row in ordered)
            else:
                numbers[field.name] = rows[0].value if rows else None
        return LayerFacts(**numbers)


def exact_stack(facts: StackFacts, *, name: str = "stack") -> CollapseStack:
    """Return facts whose residuals are right far below rounding as a stack of their own."""
    known: dict[Measure, tuple[float, ...]] = {
        "composite": facts.log10_composite,
        "smallest": facts.log10_smallest,
        "frobenius": facts.log10_frobenius,
    }
    residuals: dict[Measure, tuple[Residual | None, ...]] = {
        measure: _exact(facts, measure, values) for measure, values in known.items()
    }
    prefixes = tuple(
        CollapsePrefix(
            replace(
                facts,
                layers=facts.layers[:upto],
                log10_composite=facts.log10_composite[: upto + 1],
                log10_smallest=facts.log10_smallest[: upto + 1],
                log10_frobenius=facts.log10_frobenius[: upto + 1],
            )
        )
        for upto in range(1, facts.depth + 1)
    )
    statistics: dict[Measure, str] = {measure: "value" for measure in known if known[measure]}
    missing: dict[Measure, str] = {
        measure: f"log10_{measure} is not in the facts, or not depth + 1 numbers long"
        for measure, line in residuals.items()
        if not any(line)
    }
    return CollapseStack(name, prefixes, residuals, statistics, missing=missing)


def _exact(
    facts: StackFacts, measure: Measure, values: Sequence[float]
) -> tuple[Residual | None, ...]:
    if len(values) != facts.depth + 1:
        return (None,) * (facts.depth + 1)
    if measure != "smallest":
        return tuple(Residual(value, least=value) for value in values)
    if len(facts.log10_composite) != len(values) or facts.tokens < 2:
        return tuple(Residual(value) for value in values)
    centring = math.log10(2.0 * (1.0 - 1.0 / facts.tokens))
    pairs = zip(values, facts.log10_composite, strict=True)
    return tuple(Residual(value, least=min(value, mean - centring)) for value, mean in pairs)
