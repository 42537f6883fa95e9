"""A record in the form that rules ask it: numbers by place, twins, neighbours, facts of a visit.

Numbers of a twin (the same configuration with random weights, measured on the same inputs) are rows
with the statistic `twin`, or `twin` and the name of the statistic (`twin_mean`). Weights and norms are
rows whose point is the name of the tensor as seen from its block; those outside of blocks stand at
layer 0 of the stack `model`, under their full name. What is no number stands in the provenance under
`visit`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

from leadline.record.provenance import text_at

if TYPE_CHECKING:
    from leadline.record import Quantity, Record

__all__ = ["OUTSIDE", "Case", "CasePlace", "Outlier", "outliers"]

T = TypeVar("T")

OUTSIDE = "model"
"""The stack of tensors that belong to no block."""

NEIGHBOURS = 4
"""So many nearest layers say what is usual at a depth."""
FLOOR = 0.15
"""The least median deviation of a logarithm that is taken for real: exact copies have none."""
DEVIATIONS = 6.0
"""So many median absolute deviations away a value is an outlier, if its factor is large enough too."""


@dataclass(frozen=True, slots=True, order=True)
class CasePlace:
    """Where a number of a rule stands."""

    stack: str
    layer: int
    sublayer: int | None = None
    point: str = "stream"
    head: int | None = None


@dataclass(frozen=True, slots=True)
class Outlier:
    """A value unlike those around it; `expected` is what they say, `factor` the value over it."""

    layer: int
    value: float
    expected: float

    @property
    def factor(self) -> float:
        """The value over what was expected."""
        return self.value / self.expected if self.expected else math.inf


def outliers(
    values: Mapping[int, float],
    *,
    factor: float,
    twin: Mapping[int, float] | None = None,
    deviations: float = DEVIATIONS,
) -> list[Outlier]:
    """The layers whose value lies far from its neighbours in depth, by a factor and by deviations.

    Logarithms are compared. With `twin`, what the twin shows at the same layers is taken off
    first, so that what the design does by itself is no outlier. Zero and what is not finite are
    for other rules; at least four finite values are needed.
    """
    logs = {at: math.log(v) for at, v in values.items() if v > 0 and math.isfinite(v)}
    if twin is not None:
        logs = {
            at: log - math.log(twin[at])
            for at, log in logs.items()
            if twin.get(at, 0.0) > 0 and math.isfinite(twin[at])
        }
    if len(logs) < NEIGHBOURS:
        return []
    apart: dict[int, float] = {}
    order = sorted(logs)
    for index, at in enumerate(order):
        around = order[max(0, index - NEIGHBOURS) : index + NEIGHBOURS + 1]
        nearest = sorted((other for other in around if other != at), key=lambda o: (abs(o - at), o))
        log = logs[at]
        apart[at] = log - median(logs[other] for other in nearest[:NEIGHBOURS])
    spread = max(FLOOR, median(abs(one) for one in apart.values()))
    limit = max(math.log(factor), deviations * spread)
    return [
        Outlier(at, values[at], values[at] / math.exp(one))
        for at, one in sorted(apart.items())
        if abs(one) > limit
    ]


class Case:
    """One record, as rules ask it."""

    def __init__(self, record: Record, reference: Record | None = None) -> None:
        self.record = record
        self.reference = None if reference is None else Case(reference)
        self.provenance: Mapping[str, Any] = record.provenance
        self._values: dict[tuple[str, str], dict[CasePlace, float]] = {}
        self._lines: dict[tuple[str, str], dict[tuple[str, str], dict[int, float]]] = {}
        self._remembered: dict[Hashable, Any] = {}

    # --- what is there -----------------------------------------------------------------------

    def has(self, need: str) -> bool:
        """Whether a quantity has readings, or a visit a fact of this name.

        `anatomy`, `twin` and `reference` ask whether there is one; `twin or natural text` whether
        there is either, to tell a loss that is wrong from inputs that nothing can predict.
        """
        if need == "anatomy":
            return bool(self.layers)
        if need == "twin":
            return self.has_twin
        if need == "twin or natural text":
            return self.has_twin or self.natural
        if need == "reference":
            return self.reference is not None
        return need in self.facts or self.remember(("measured", need), lambda: self._has(need))

    def _has(self, quantity: str) -> bool:
        if quantity not in self.quantities:
            return False
        # Rules that need a quantity nearly always read its headline, which is then at hand.
        return bool(self.values(quantity) or self.record.select(quantity))

    @cached_property
    def quantities(self) -> Mapping[str, Quantity]:
        """The definitions of the quantities by name."""
        return self.record.quantities

    def remember(self, key: Hashable, compute: Callable[[], T]) -> T:
        """What `compute` returns, computed once for each key: several rules ask for the same."""
        if key not in self._remembered:
            self._remembered[key] = compute()
        return self._remembered[key]

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """What a visit found out that is no number of a place, by name."""
        return self.provenance.get("visit") or {}

    @property
    def design(self) -> Mapping[str, Any]:
        """What the model says of itself: its family, settings, norms; empty where nobody asked."""
        design: Mapping[str, Any] | None = self.facts.get("design")
        return design or {}

    @property
    def anatomy(self) -> Mapping[str, Any]:
        """The anatomy as its JSON has it; empty where there is none."""
        anatomy: Mapping[str, Any] | None = self.provenance.get("anatomy")
        return anatomy or {}

    def fact(self, name: str, otherwise: Any = None) -> Any:
        """One fact of the visit."""
        return self.facts.get(name, otherwise)

    # --- the design --------------------------------------------------------------------------

    @cached_property
    def layers(self) -> list[Mapping[str, Any]]:
        """The blocks of the anatomy, as its JSON has them; none where it was refused."""
        return list(self._anatomy.get("layers", ()))

    @cached_property
    def stacks(self) -> Mapping[str, Mapping[str, Any]]:
        """Depth, width, lanes, causality by stack."""
        return self._anatomy.get("stacks", {})

    @property
    def _anatomy(self) -> Mapping[str, Any]:
        return self.provenance.get("anatomy") or {}

    def depth(self, stack: str) -> int:
        """The number of blocks of a stack."""
        known = self.stacks.get(stack)
        if known is not None:
            return int(known["depth"])
        rows = self.fact("rows", {})
        return len(rows.get(stack, ()))

    def placements(self, stack: str) -> set[str]:
        """Where norms stand in the blocks of a stack."""
        return {one["placement"] for one in self.layers if one["stack"] == stack}

    def module(self, stack: str, layer: int) -> str:
        """The path of a block's module."""
        block = self._blocks.get((stack, layer))
        if block is not None:
            return block["module"]
        rows = self.fact("rows", {}).get(stack, ())
        return rows[layer - 1] if 0 < layer <= len(rows) else ""

    def branch(self, stack: str, layer: int, role: str) -> str:
        """The path of the module that computes the update of this role in a block."""
        for sublayer in self._blocks.get((stack, layer), {}).get("sublayers", ()):
            if sublayer["role"] == role:
                return sublayer["module"]
        return ""

    @cached_property
    def _blocks(self) -> Mapping[tuple[str, int], Mapping[str, Any]]:
        # Of several at one place the first counts.
        return {(one["stack"], one["layer"]): one for one in reversed(self.layers)}

    def place_of(self, path: str) -> tuple[str | None, int]:
        """The stack and layer of a module by its path; (None, 0) outside of the blocks."""
        for stack, paths in self.fact("rows", {}).items():
            for layer, block in enumerate(paths, start=1):
                if path == block or path.startswith(f"{block}."):
                    return stack, layer
        return None, 0

    def parameter(self, place: CasePlace) -> str:
        """The full path of the tensor at a place of weights or norms."""
        if place.stack == OUTSIDE:
            return place.point
        return f"{self.module(place.stack, place.layer)}.{place.point}"

    # --- the state ---------------------------------------------------------------------------

    @property
    def has_twin(self) -> bool:
        """Whether a twin with random weights was measured too."""
        return bool(self.fact("twin", {}).get("built"))

    @cached_property
    def at_initialisation(self) -> bool | None:
        """Whether the weights are as they are drawn, by the twin; None where there is no twin.

        Nearly all tensors have the spread of their twin, within the sampling error of the
        twin and a factor that training soon leaves; and biases and gains, which start as exactly
        0 and 1, are mostly still there. The embedded pair is trained and keeps the spread of all
        its matrices within 1.4: only its biases and gains tell. A gain that is off by a whole 1
        is a fault, and not training.
        """
        mine, twins = self.values("weights.rms"), self.values("weights.rms", "twin")
        shared = [place for place in mine if twins.get(place, 0) > 0]
        if not self.has_twin or not shared:
            return None
        near = sum(1 / 1.5 < mine[place] / twins[place] < 1.5 for place in shared)
        return near >= 0.8 * len(shared) and self.unmoved is not False

    @cached_property
    def unmoved(self) -> bool | None:
        """Whether biases and gains, which start as exactly 0 and 1, are mostly still there.

        None where there is no twin, or no such tensor.
        """
        mine, twins = self.values("weights.rms"), self.values("weights.rms", "twin")
        fixed = [place for place in mine if twins.get(place) in (0.0, 1.0)]
        moved = sum(1e-4 < abs(mine[place] - twins[place]) < 0.9 for place in fixed)
        return moved <= 0.5 * len(fixed) if fixed else None

    @property
    def natural(self) -> bool:
        """Whether the inputs are natural language: rules about trained losses need it."""
        kind = text_at(self.provenance, "input", "kind")
        return kind == "text" or bool(self.fact("natural_input"))

    # --- numbers -----------------------------------------------------------------------------

    def values(self, quantity: str, statistic: str | None = None) -> dict[CasePlace, float]:
        """All numbers of a quantity by place; the headline's unless a statistic is named."""
        if quantity not in self.quantities:
            return {}
        name = statistic or self.quantities[quantity].headline
        key = quantity, name
        if key not in self._values:
            self._values[key] = {
                CasePlace(
                    reading.site.stack,
                    reading.site.layer,
                    reading.site.sublayer,
                    reading.site.point,
                    reading.site.head,
                ): reading.value
                for reading in self.record.select(quantity, statistic=name)
                if reading.site.lane is None
            }
        return self._values[key]

    def lines(
        self, quantity: str, statistic: str | None = None
    ) -> dict[tuple[str, str], dict[int, float]]:
        """Numbers over depth by (stack, point), without heads and, of the stream, between blocks.

        Where a block has several writes of one role they are numbered: `mlp`, `mlp 2`.
        """
        key = quantity, statistic or ""
        if key not in self._lines:
            self._lines[key] = self._build_lines(quantity, statistic)
        return self._lines[key]

    def _build_lines(
        self, quantity: str, statistic: str | None
    ) -> dict[tuple[str, str], dict[int, float]]:
        grouped: defaultdict[tuple[str, str], dict[int, float]] = defaultdict(dict)
        for place, value in sorted(
            self.values(quantity, statistic).items(), key=lambda pair: _order(pair[0])
        ):
            if place.head is not None:
                continue
            if place.point == "stream" and place.sublayer is not None:
                continue
            name, count = place.point, 1
            while place.layer in grouped[place.stack, name]:
                count += 1
                name = f"{place.point} {count}"
            grouped[place.stack, name][place.layer] = value
        return {key: line for key, line in grouped.items() if line}

    def twin_lines(self, quantity: str) -> dict[tuple[str, str], dict[int, float]]:
        """The same of the twin."""
        headline = self.quantities[quantity].headline if quantity in self.quantities else "value"
        statistic = "twin" if headline == "value" else f"twin_{headline}"
        return self.lines(quantity, statistic)

    def alike(self, stack: str, layers: Iterable[int]) -> bool:
        """Whether blocks are of one kind: the same tensors by name."""
        names = [self._tensor_names.get((stack, layer), frozenset()) for layer in layers]
        return len(set(names)) <= 1

    @cached_property
    def _tensor_names(self) -> dict[tuple[str, int], frozenset[str]]:
        grouped: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        for place in self.values("weights.rms"):
            grouped[place.stack, place.layer].add(place.point)
        return {key: frozenset(names) for key, names in grouped.items()}


def _order(place: CasePlace) -> tuple[Any, ...]:
    return place.stack, place.layer, place.sublayer or 0, place.point, place.head or 0
