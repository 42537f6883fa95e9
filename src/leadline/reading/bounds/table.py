"""Bounds beside measurements, as data: one row per bound and head, one result per bound.

A law of depth predicts a band, and has two results of one name: its upper and its lower end.

Residuals fall below the smallest float, so what bounds on rank collapse predict is kept as log10,
and so is what was measured there; their rows have no head, one stands after every layer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from leadline.record.provenance import strict_number
from leadline.record.words.screen import Screen, Showable

if TYPE_CHECKING:
    from leadline.record.words.table import TextTable
    from leadline.theory.rank_collapse.bound import CollapseSide

__all__ = ["FAMILIES", "BoundAtHead", "BoundFamily", "BoundResult", "BoundsTable"]

BoundFamily = Literal["attention", "collapse", "depth"]
FAMILIES: tuple[BoundFamily, ...] = ("attention", "collapse", "depth")
"""On attention matrices, on rank collapse, laws along the layers."""


@dataclass(frozen=True, slots=True)
class BoundAtHead:
    """One bound at one head (`head` is None for a quantity without heads).

    `predicted` and `measured` are None where they are not known. `lower` and `upper` hold the
    certified interval of what was measured, where there is one. `because` says which assumptions
    fail. `ratio` is NaN where there is none.
    """

    stack: str
    layer: int
    sublayer: int | None
    point: str
    head: int | None
    predicted: float | None
    measured: float | None
    lower: float | None
    upper: float | None
    ratio: float
    applies: bool
    because: tuple[str, ...]
    violated: bool

    def to_json(self) -> dict[str, Any]:
        """Return the row as strict JSON."""
        return {
            "stack": self.stack,
            "layer": self.layer,
            "sublayer": self.sublayer,
            "point": self.point,
            "head": self.head,
            "predicted": _strict(self.predicted),
            "measured": _strict(self.measured),
            "lower": _strict(self.lower),
            "upper": _strict(self.upper),
            "ratio": strict_number(self.ratio),
            "applies": self.applies,
            "because": list(self.because),
            "violated": self.violated,
        }


@dataclass(frozen=True, slots=True)
class BoundResult:
    """One bound on all heads, or after all layers.

    `statistic` says which value over the examples was measured. With `log10`, every number of the
    rows but the ratio is a log10. A `law` is no bound but a limit: it is never violated, and its
    ratio tends to 1.
    """

    name: str
    title: str
    statement: str
    source: str
    side: CollapseSide
    quantity: str
    statistic: str
    rows: tuple[BoundAtHead, ...]
    log10: bool = False
    family: BoundFamily = "attention"

    @property
    def label(self) -> str:
        """The name, with the end of the band that it is about for a law of depth."""
        if self.family != "depth":
            return self.name
        return f"{self.name} {'≤' if self.side == 'upper' else '≥'}"

    @property
    def applying(self) -> tuple[BoundAtHead, ...]:
        """The rows to which it applies."""
        return tuple(row for row in self.rows if row.applies)

    @property
    def violations(self) -> tuple[BoundAtHead, ...]:
        """The rows that violate it."""
        return tuple(row for row in self.rows if row.violated)

    @property
    def closest(self) -> BoundAtHead | None:
        """The row in which the measurement comes closest to the bound, or passes it farthest.

        Among those to which it applies, if there are any, and those that are not at the floor of
        rounding.
        """
        rows = [row for row in self.applying or self.rows if not math.isnan(row.ratio)]
        rows = [row for row in rows if not self.at_floor(row)] or rows
        best = max if self.side == "upper" else min
        return best(rows, key=self.distance) if rows else None

    def at_floor(self, row: BoundAtHead) -> bool:
        """Whether a residual may be rounding alone: the lower end of its interval is zero."""
        return self.log10 and row.lower == -math.inf

    def distance(self, row: BoundAtHead) -> float:
        """Say how far a measurement stands above the bound, so that rows can be put in order.

        That is the ratio, or its logarithm where a ratio may lie beyond float; of a law, how far it
        is from 1 in either direction.
        """
        apart = row.ratio
        if self.log10:
            assert row.measured is not None and row.predicted is not None
            apart = row.measured - row.predicted
        return abs(apart) if self.side == "law" else apart

    def to_json(self) -> dict[str, Any]:
        """Return the bound with all its rows as strict JSON."""
        closest = self.closest
        return {
            "name": self.name,
            "family": self.family,
            "title": self.title,
            "statement": self.statement,
            "source": self.source,
            "side": self.side,
            "quantity": self.quantity,
            "statistic": self.statistic,
            "log10": self.log10,
            "applies_to": len(self.applying),
            "violated": len(self.violations),
            "closest": None if closest is None else closest.to_json(),
            "rows": [row.to_json() for row in self.rows],
        }


@dataclass(frozen=True)
class BoundsTable(Showable):
    """All bounds of one record: the violated ones first, then those that apply, tightest first."""

    name: str
    bounds: tuple[BoundResult, ...]

    @property
    def violated(self) -> bool:
        """Whether any bound is violated where it applies."""
        return any(bound.violations for bound in self.bounds)

    def families(self) -> list[BoundsTable]:
        """Separate the bounds on attention, those on rank collapse and the laws of depth."""
        parts = [[b for b in self.bounds if b.family == family] for family in FAMILIES]
        return [replace(self, bounds=tuple(part)) for part in parts if part] or [self]

    def screen(self, *, everything: bool = False, heads: bool = False) -> Screen:
        """Return the answer and the nearest bounds; with `heads` a row per bound and head."""
        from leadline.reading.bounds.terminal import bounds_screen

        return bounds_screen(self, heads=heads, everything=everything)

    def table(self) -> TextTable:
        """Return every bound as a table; `print` shows those nearest to what was measured."""
        from leadline.reading.bounds.terminal import summary_table

        return summary_table(self.bounds)

    def to_json(self) -> dict[str, Any]:
        """Return the table as strict JSON: NaN is null, infinities are strings."""
        from leadline.reading.bounds.text import bounds_answer

        return {
            "schema": 1,
            "name": self.name,
            "answer": bounds_answer(self),
            "violated": self.violated,
            "bounds": [bound.to_json() for bound in self.bounds],
        }


def _strict(value: float | None) -> float | str | None:
    return None if value is None else strict_number(value)
