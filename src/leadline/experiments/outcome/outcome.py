"""What an experiment gives back: lines over depth in panels, remarks, and the records behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leadline.reading.show.panels import Line, Places, Plane, Table

if TYPE_CHECKING:
    from leadline.record import Record

__all__ = ["Outcome"]


@dataclass(frozen=True)
class Outcome:
    """What came out: a picture is drawn from it, and a table printed."""

    experiment: str
    title: str
    value_label: str
    lines: tuple[Line, ...]
    remarks: tuple[str, ...]
    records: Mapping[str, Record]
    failures: Mapping[str, str] = field(default_factory=dict[str, str])
    """Models that could not be measured, and why."""
    start: int = 1
    """The layer of the first value: 0 where the stream before the first layer is shown too."""
    axis: str = "layer"
    """What the places of a line count."""
    scales: Mapping[str, str] = field(default_factory=dict[str, str])
    """Panels with an axis of their own: "exponent" for values that are logarithms of any size."""

    tables: tuple[Table, ...] = ()
    captioned: bool = False
    """Whether the remarks stand under the picture too."""
    places: Mapping[str, Places] = field(default_factory=dict[str, Places])
    """Panels whose lines do not count layers, and what they stand over."""
    across: int | None = None
    """How many panels stand side by side; all unless given."""
    planes: tuple[Plane, ...] = ()
    """Panels behind those of the lines, in the picture alone."""

    @property
    def panels(self) -> list[str]:
        """The panels in their order."""
        return list(dict.fromkeys(line.panel for line in self.lines))

    def to_json(self) -> dict[str, Any]:
        """Return everything but the records as JSON."""
        return {
            "experiment": self.experiment,
            "title": self.title,
            "quantity": self.value_label,
            "first_layer": self.start,
            "axis": self.axis,
            **(
                {"places": {name: one.to_json() for name, one in self.places.items()}}
                if self.places
                else {}
            ),
            "lines": [line.to_json() for line in self.lines],
            **({"planes": [one.to_json() for one in self.planes]} if self.planes else {}),
            "tables": [table.to_json() for table in self.tables],
            "remarks": list(self.remarks),
            "records": sorted(self.records),
            "failures": dict(self.failures),
        }
