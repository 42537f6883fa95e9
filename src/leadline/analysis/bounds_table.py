"""Bounds beside measurements, as data: one row per bound and head, one result per bound."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leadline.record.provenance import strict_number

if TYPE_CHECKING:
    from leadline.theory.attention._bound import Side

__all__ = ["BoundAtHead", "BoundResult", "BoundsTable"]


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
    """One bound on all heads. `statistic` says which value over the examples was measured."""

    name: str
    title: str
    statement: str
    source: str
    side: Side
    quantity: str
    statistic: str
    rows: tuple[BoundAtHead, ...]

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

        Among those to which it applies, if there are any.
        """
        rows = [row for row in self.applying or self.rows if not math.isnan(row.ratio)]
        best = max if self.side == "upper" else min
        return best(rows, key=lambda row: row.ratio) if rows else None

    def to_json(self) -> dict[str, Any]:
        """Return the bound with all its rows as strict JSON."""
        closest = self.closest
        return {
            "name": self.name,
            "title": self.title,
            "statement": self.statement,
            "source": self.source,
            "side": self.side,
            "quantity": self.quantity,
            "statistic": self.statistic,
            "applies_to": len(self.applying),
            "violated": len(self.violations),
            "closest": None if closest is None else closest.to_json(),
            "rows": [row.to_json() for row in self.rows],
        }


@dataclass(frozen=True)
class BoundsTable:
    """All bounds of one record: the violated ones first, then those that apply, tightest first."""

    name: str
    bounds: tuple[BoundResult, ...]

    @property
    def violated(self) -> bool:
        """Whether any bound is violated where it applies."""
        return any(bound.violations for bound in self.bounds)

    def __str__(self) -> str:
        from leadline.analysis.bounds_text import bounds_text

        return bounds_text(self)

    def _repr_html_(self) -> str:
        from leadline.analysis.bounds_text import bounds_html

        return bounds_html(self)

    def to_json(self) -> dict[str, Any]:
        """Return the table as strict JSON: NaN is null, infinities are strings."""
        return {
            "schema": 1,
            "name": self.name,
            "violated": self.violated,
            "bounds": [bound.to_json() for bound in self.bounds],
        }


def _strict(value: float | None) -> float | str | None:
    return None if value is None else strict_number(value)
