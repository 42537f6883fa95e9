"""A chart of the page as data: lines in panels, and the rows of the key that they belong to.

The page holds every number once, in the JSON of its records. A line that stands there too carries
its address, and `chart_json` writes where it stands instead of its numbers; the script of the page
reads them from there. Lines of their own (a lane, a rank, what a bound predicts) bring them along.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from leadline.record.provenance import strict_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leadline.record import Profile
    from leadline.record.rows.quantity import AxisScale, Over

__all__ = ["MOST_POINTS", "Chart", "ChartLine", "HeldLine", "KeyRow", "LineAddress", "chart_json"]

MOST_POINTS = 800
"""A curve of more points than a chart has pixels is thinned, in the chart and in the page's JSON."""

LineAddress = tuple[int, Literal["series", "curves"], tuple[object, ...]]
"""A record's number, which of its lists, and what tells a line of that list from the others."""
HeldLine = tuple[int, list[int], list[Any]]
"""Where a line stands in its list, its layers or steps, and its values as JSON."""


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One row of the key, and how its lines look.

    `details` are written behind the label, `group` is the title of its list. `symbol` is empty
    where the lines have no markers, `band` says that two of them are the edges of an area.
    `profiles` are the lines over depth that it stands for, the headline first.
    """

    label: str
    details: tuple[str, ...]
    colour: str
    symbol: str = ""
    dash: str = "solid"
    width: float = 2.0
    group: str = ""
    shown: bool = True
    band: bool = False
    record: int = 0
    panel: int = 0
    profiles: tuple[Profile, ...] = ()

    @property
    def headline(self) -> Profile:
        """The line of the headline statistic."""
        return self.profiles[0]


@dataclass(frozen=True, slots=True)
class ChartLine:
    """One line: `values` at the layers or steps `x`.

    `series` is the number of its row in the key, `heading` its name in hover boxes and tables.
    `depth` is that of its stack. `notes` say more about each value, `below` and `above` how far
    its interval reaches. `words` is what stands between name and value in a hover box.
    """

    series: int
    heading: str
    x: tuple[int, ...]
    values: tuple[float, ...]
    statistic: str = "value"
    panel: int = 0
    depth: int = 1
    dash: str = ""
    words: str = "="
    notes: tuple[str, ...] = ()
    below: tuple[float, ...] = ()
    above: tuple[float, ...] = ()
    address: LineAddress | None = None

    @property
    def gaps(self) -> list[int]:
        """The layers or steps whose value is not finite."""
        return [x for x, value in zip(self.x, self.values, strict=True) if not math.isfinite(value)]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart and what the page says beside it.

    `key` is an identifier of letters, digits and dashes. `panels` holds the titles of the panels,
    one empty title where there is a single panel. `statistics` begins with the headline, `shown`
    are those drawn at first. `gaps` has a sentence for every line with values that are not finite.
    `limits` are the ends of the vertical axis where they are fixed, `cut` says what lies beyond.
    """

    key: str
    title: str
    symbol: str
    scale: AxisScale
    rows: tuple[KeyRow, ...]
    lines: tuple[ChartLine, ...]
    spoken: str
    name: str = ""
    topic: str = ""
    leads: bool = False
    unit: str = ""
    logarithm: bool = False
    """Whether values are logarithms, so that no factor is said of them."""
    across: Over = "layer"
    panels: tuple[str, ...] = ("",)
    statistics: tuple[str, ...] = ("value",)
    shown: tuple[str, ...] = ("value",)
    gaps: tuple[str, ...] = ()
    limits: tuple[float, float] | None = None
    cut: str = ""
    meaning: tuple[tuple[str, str], ...] = ()
    formulas: tuple[tuple[str, str], ...] = ()

    @property
    def any_positive(self) -> bool:
        """Whether a logarithmic scale would show anything."""
        return any(value > 0 for line in self.lines for value in line.values)

    def lines_of(self, row: int) -> list[ChartLine]:
        """Return the lines of a row of the key."""
        return [line for line in self.lines if line.series == row]


def chart_json(chart: Chart, held: Mapping[LineAddress, HeldLine]) -> dict[str, Any]:
    """Return the chart as the page's script reads it; `held` are the lines of the records' JSON."""
    return {
        "id": chart.key,
        "scale": chart.scale,
        "across": chart.across,
        "panels": list(chart.panels),
        **({"limits": list(chart.limits)} if chart.limits else {}),
        "unit": chart.unit,
        "rows": [
            {
                "colour": row.colour,
                "symbol": row.symbol,
                "dash": row.dash,
                "width": row.width,
                "band": row.band,
                "record": row.record,
            }
            for row in chart.rows
        ],
        "lines": [_line_json(line, held) for line in chart.lines],
    }


def _line_json(line: ChartLine, held: Mapping[LineAddress, HeldLine]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "series": line.series,
        "heading": line.heading,
        "statistic": line.statistic,
        "panel": line.panel,
        "depth": line.depth,
        "words": line.words,
    }
    if line.dash:
        entry["dash"] = line.dash
    numbers = list(line.x), [strict_number(value) for value in line.values]
    place, *same = held.get(line.address, (0,)) if line.address else (0,)
    # A rank or a lane has the address of the line that sums it up, but other numbers.
    if line.address and tuple(same) == numbers:
        entry["from"] = [line.address[0], line.address[1], place]
    else:
        entry["x"], entry["values"] = numbers
    for key, ends in (("below", line.below), ("above", line.above)):
        if ends:
            entry[key] = [strict_number(value) for value in ends]
    if line.notes:
        entry["notes"] = list(line.notes)
    return entry
