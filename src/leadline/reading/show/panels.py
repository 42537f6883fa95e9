"""What a picture of curves is drawn from: lines in panels, points of a plane, tables beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from leadline.record.provenance import strict_number

__all__ = ["Line", "Places", "Plane", "Table"]


@dataclass(frozen=True)
class Line:
    """One curve, layer by layer from `Outcome.start` on. `faint` ones are for comparison only."""

    panel: str
    name: str
    values: tuple[float, ...]
    faint: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    errors: tuple[float, ...] = ()
    """The standard error of every value, in the unit of the values; none where there are none."""

    def to_json(self) -> dict[str, Any]:
        """Return the line as JSON."""
        return {
            "panel": self.panel,
            "name": self.name,
            "values": [strict_number(value) for value in self.values],
            "compared_only": self.faint,
            **({"errors": [strict_number(one) for one in self.errors]} if self.errors else {}),
            **self.facts,
        }


@dataclass(frozen=True)
class Places:
    """Where the values of a panel stand, if they do not count layers: depths, steps."""

    label: str
    at: tuple[float, ...]
    logarithmic: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the places as JSON."""
        return {"axis": self.label, "at": list(self.at)}


@dataclass(frozen=True)
class Plane:
    """Points of a plane by name, and a circle that is named `region`."""

    panel: str
    points: Mapping[str, tuple[tuple[float, float], ...]]
    centre: tuple[float, float]
    radius: float
    region: str
    label: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return points and circle as JSON."""
        return {
            "panel": self.panel,
            "points": {
                name: [[strict_number(end) for end in point] for point in points]
                for name, points in self.points.items()
            },
            "region": {"name": self.region, "centre": list(self.centre), "radius": self.radius},
        }


@dataclass(frozen=True)
class Table:
    """A table of numbers that belong to no curve."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[float, ...], ...]
    digits: int = 2
    """How many digits the terminal shows."""
    names: tuple[str, ...] = ()
    """What the rows are called; none where their first number tells it."""

    def to_json(self) -> dict[str, Any]:
        """Return the table as JSON, a mapping per row."""
        rows = [
            dict(zip(self.columns, (strict_number(value) for value in row), strict=True))
            for row in self.rows
        ]
        if self.names:
            rows = [{"name": name, **row} for name, row in zip(self.names, rows, strict=True)]
        return {"title": self.title, "rows": rows}

    def cells(self) -> list[tuple[str, str, float]]:
        """Every number with the name of its row and the title of its column."""
        if self.names:
            return [
                (name, title, value)
                for name, row in zip(self.names, self.rows, strict=True)
                for title, value in zip(self.columns, row, strict=True)
            ]
        first, *others = self.columns
        return [
            (f"{first} {row[0]:g}", title, value)
            for row in self.rows
            for title, value in zip(others, row[1:], strict=True)
        ]
