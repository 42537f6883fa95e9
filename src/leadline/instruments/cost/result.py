"""What an instrument will cost: parts with their passes, work, memory and seconds. Needs no torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from leadline.instruments.cost.uncertainty import UNCERTAINTY

__all__ = ["CostEstimate", "CostPart"]


@dataclass(frozen=True)
class CostPart:
    """One part of a measurement. `memory` is what it holds beside the weights at its highest."""

    name: str
    doing: str
    flops: float = 0.0
    bytes: float = 0.0
    calls: float = 0.0
    seconds: float = 0.0
    memory: float = 0.0
    passes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Passes of the model by the names under which a record counts them."""


@dataclass(frozen=True)
class CostEstimate:
    """The predicted cost of one measurement, part by part."""

    instrument: str
    model: str
    examples: int
    tokens: int
    parts: tuple[CostPart, ...]
    weights: float
    rates: Mapping[str, Any]
    undeclared: tuple[str, ...] = ()
    """Probes that declare no cost: theirs is not in the numbers."""
    remarks: tuple[str, ...] = ()
    streamed: float | None = None
    """Bytes that it holds at its highest where the weights are read block by block; None where
    nobody has counted it."""

    @property
    def seconds(self) -> float:
        """Of all parts together, without loading the model."""
        return sum(part.seconds for part in self.parts)

    @property
    def memory(self) -> float:
        """Weights and the largest part: what the measurement holds at its highest."""
        return self.weights + self.added

    @property
    def added(self) -> float:
        """What it holds at its highest beside the weights."""
        return max((part.memory for part in self.parts), default=0.0)

    @property
    def flops(self) -> float:
        """Of all parts together."""
        return sum(part.flops for part in self.parts)

    @property
    def bytes(self) -> float:
        """Bytes read and written by all parts."""
        return sum(part.bytes for part in self.parts)

    @property
    def passes(self) -> dict[str, int]:
        """Passes of the model by kind, as the record will count them."""
        total = Counter[str]()
        for part in self.parts:
            total.update(part.passes)
        return dict(total)

    @property
    def together(self) -> CostPart:
        """All parts as one: their sums, and the memory of the largest."""
        return CostPart(
            "together",
            "",
            flops=self.flops,
            bytes=self.bytes,
            seconds=self.seconds,
            memory=self.added,
            passes=self.passes,
        )

    def part(self, name: str) -> CostPart:
        """The part of this name."""
        return next(part for part in self.parts if part.name == name)

    def to_json(self) -> dict[str, Any]:
        """The estimate as JSON."""
        return {
            "instrument": self.instrument,
            "model": self.model,
            "examples": self.examples,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "memory": self.memory,
            "weights": self.weights,
            "streamed": self.streamed,
            "flops": self.flops,
            "bytes": self.bytes,
            "passes": self.passes,
            "uncertainty": UNCERTAINTY,
            "parts": [{**vars(part), "passes": dict(part.passes)} for part in self.parts],
            "rates": dict(self.rates),
            "undeclared": list(self.undeclared),
            "remarks": list(self.remarks),
        }

    def __str__(self) -> str:
        from leadline.instruments.cost.text import answer

        return answer(self)
