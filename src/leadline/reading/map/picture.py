"""The map of what trains as one SVG picture: the loss by depth, and beside it the gauge.

It stands on its own in a file, with colours for light and for dark pages; inside the report it
takes those of the page. No meaning rests on colour alone: every place has a mark and numbers, and
a frame goes round the depths that are usable.
"""

from __future__ import annotations

import html
import math
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leadline.reading.map.gauge_prediction import badness
from leadline.reading.map.text import (
    MARKS,
    depth_text,
    gauge_title,
    hole_text,
    loss_text,
    map_title,
    notes,
    prediction_sentence,
    rules,
    seed_text,
    usable_text,
)
from leadline.reading.show.svg import svg_text
from leadline.reading.show.wording import number

if TYPE_CHECKING:
    from leadline.reading.map.places import MapPlace, MapRow
    from leadline.reading.map.trainability import Trainability

__all__ = ["trainability_picture"]

_WIDE, _HIGH, _GAP = 66, 40, 3
_TOP = 76
_LETTER = 7.0
"""About how wide a letter is, in pixels: an SVG cannot measure its text."""
_TITLE_LETTER = 9.0
"""The same for the title."""
_LOSS_HEADING = "validation loss, seeds that train"
_USABLE = 88
_BETWEEN = 24
_FAINT, _STRONG = 0.16, 0.5
"""The opacity of the palest and of the strongest fill: letters stay readable on both."""

_STYLE = (
    ".trainmap text{font:12px system-ui,sans-serif;fill:#18202a}"
    ".trainmap .soft{fill:#55616d}.trainmap .title{font-size:15px;font-weight:600}"
    ".trainmap .small{font-size:10.5px}.trainmap .paper{fill:#fff}.trainmap .yes{fill:#00875f}"
    ".trainmap .no{fill:#d55e00}.trainmap .gauge{fill:#0072b2}"
    ".trainmap .hole{fill:none;stroke:#b9c2ca;stroke-dasharray:3 3}"
    ".trainmap .usable{fill:none;stroke:#18202a;stroke-width:2}"
    "@media (prefers-color-scheme:dark){.trainmap text{fill:#e7ebef}.trainmap .soft{fill:#a0acb8}"
    ".trainmap .paper{fill:#161c23}.trainmap .yes{fill:#2cc295}.trainmap .no{fill:#f58b4c}"
    ".trainmap .gauge{fill:#56b4e9}.trainmap .hole{stroke:#55616d}"
    ".trainmap .usable{stroke:#e7ebef}}"
)


@dataclass(frozen=True, slots=True)
class _MapLayout:
    """Where things stand: the left edge of both maps and of the usable depths, and the size."""

    loss: float
    usable: float
    gauge: float
    width: float
    bottom: float


def trainability_picture(training_map: Trainability, *, alone: bool = True) -> str:
    """Draw the map; `alone` adds a title, the colours, the rule and the notes."""
    layout = _lay_out(training_map)
    parts = [_headings(training_map, layout)]
    for at, row in enumerate(training_map.rows):
        parts.append(_row(training_map, row, layout, y=_TOP + at * (_HIGH + _GAP)))
    lines_below = [_key()]
    if alone:
        lines_below += [
            *rules(training_map),
            prediction_sentence(training_map),
            *notes(training_map),
        ]
    lines = [
        piece for line in lines_below for piece in textwrap.wrap(line, int(layout.width / 6.6))
    ]
    for at, line in enumerate(lines):
        y = layout.bottom + 22 + 17 * at
        parts.append(svg_text(line, 16, y, "soft"))
    top = 0 if alone else _TOP - 44
    height = layout.bottom + 22 + 17 * len(lines) - top
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="trainmap" width="{layout.width:g}" '
        f'height="{height:g}" viewBox="0 {top} {layout.width:g} {height:g}" role="img" '
        f'aria-label="{html.escape(_spoken(training_map))}">'
    )
    if alone:
        opening += f'<style>{_STYLE}</style><rect class="paper" width="100%" height="100%"/>'
        parts.insert(0, svg_text(map_title(training_map), 16, 24, "title"))
    return f"{opening}{''.join(parts)}</svg>\n"


def _lay_out(training_map: Trainability) -> _MapLayout:
    names = max((len(row.name) for row in training_map.rows), default=0) * _LETTER
    left = 16 + names + 12
    across = len(training_map.depths) * (_WIDE + _GAP)
    usable = left + across + 8
    usable_column = [
        f"usable {training_map.axis}",
        *(usable_text(row) for row in training_map.rows),
    ]
    end = max(usable + max(_USABLE, _wide(*usable_column)), left + _wide(_LOSS_HEADING))
    gauge = end + _BETWEEN
    width = (
        gauge + max(across, _wide(_gauge_heading(training_map))) + 16
        if training_map.shown
        else gauge
    )
    title = 16 + _TITLE_LETTER * len(map_title(training_map)) + 16
    bottom = _TOP + len(training_map.rows) * (_HIGH + _GAP)
    return _MapLayout(left, usable, gauge, max(width, title, 420.0), bottom)


def _wide(*lines: str) -> float:
    """About how wide the longest line is."""
    return max(map(len, lines)) * _LETTER


def _headings(training_map: Trainability, layout: _MapLayout) -> str:
    parts = [
        svg_text(_LOSS_HEADING, layout.loss, _TOP - 28),
        svg_text(training_map.axis, layout.loss - 12, _TOP - 8, "soft", anchor="end"),
        svg_text(f"usable {training_map.axis}", layout.usable, _TOP - 8, "soft"),
    ]
    starts = [layout.loss]
    if training_map.shown is not None:
        starts.append(layout.gauge)
        parts.append(svg_text(_gauge_heading(training_map), layout.gauge, _TOP - 28))
    for start in starts:
        for at, depth in enumerate(training_map.depths):
            middle = start + at * (_WIDE + _GAP) + _WIDE / 2
            parts.append(svg_text(depth_text(depth), middle, _TOP - 8, "soft", anchor="middle"))
    return "".join(parts)


def _gauge_heading(training_map: Trainability) -> str:
    shown = training_map.shown
    if shown is None:
        return ""
    judged = "" if math.isnan(shown.auc) else f", AUC {shown.auc:.3f}"
    return f"{gauge_title(shown.gauge).lower()} at step {shown.step}{judged}"


def _row(training_map: Trainability, row: MapRow, layout: _MapLayout, *, y: float) -> str:
    middle = y + _HIGH / 2 + 4
    parts = [svg_text(row.name, layout.loss - 12, middle, anchor="end")]
    for at, place in enumerate(row.places):
        if place is not None:
            step = at * (_WIDE + _GAP)
            parts.append(_loss(training_map, row, place, x=layout.loss + step, y=y))
            if training_map.shown is not None:
                parts.append(_gauge(training_map, place, x=layout.gauge + step, y=y))
    parts.append(_frame(row, layout, y=y))
    parts.append(svg_text(usable_text(row), layout.usable, middle))
    return "".join(parts)


def _loss(training_map: Trainability, row: MapRow, place: MapPlace, *, x: float, y: float) -> str:
    middle = x + _WIDE / 2
    title = f"<title>{html.escape(_tooltip(training_map, row, place))}</title>"
    if place.trains is None:
        reasons = hole_text(place).split("/")
        first = y + 24 - 7 * (len(reasons) - 1)
        words = "".join(
            svg_text(reason, middle, first + 14 * at, "soft small", anchor="middle")
            for at, reason in enumerate(reasons)
        )
        return (
            f'<g>{title}<rect class="hole" x="{x:g}" y="{y:g}" width="{_WIDE}" height="{_HIGH}" '
            f'rx="4"/>{words}</g>'
        )
    kind = "yes" if place.trains else "no"
    words = f"{MARKS[place.trains]} {loss_text(place)}"
    size = "small" if len(words) * _LETTER > _WIDE else ""
    return (
        f'<g>{title}<rect class="{kind}" x="{x:g}" y="{y:g}" width="{_WIDE}" height="{_HIGH}" '
        f'rx="4" fill-opacity="{_strength(training_map, place):.2f}"/>'
        f"{svg_text(words, middle, y + 17, size, anchor='middle')}"
        f"{svg_text(seed_text(place), middle, y + 32, 'small', anchor='middle')}</g>"
    )


def _strength(training_map: Trainability, place: MapPlace) -> float:
    """How strong the colour is: by the distance from the loss at which a place begins to train."""
    tasks = {cell.task for cell in place.measured}
    limit = max(training_map.entropies[task].unigram for task in tasks) - training_map.margin
    apart = 1.0 if math.isnan(place.loss) else min(abs(place.loss - limit), 1.0)
    return _FAINT + (_STRONG - _FAINT) * apart


def _gauge(training_map: Trainability, place: MapPlace, *, x: float, y: float) -> str:
    assert training_map.shown is not None
    name = training_map.shown.gauge
    value = place.gauges.get(name)
    if value is None:
        return f'<rect class="hole" x="{x:g}" y="{y:g}" width="{_WIDE}" height="{_HIGH}" rx="4"/>'
    worst = [
        badness(name, one.gauges[name])
        for row in training_map.rows
        for one in row.places
        if one is not None and name in one.gauges
    ]
    finite = [one for one in worst if math.isfinite(one)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    level = badness(name, value)
    share = 1.0 if math.isinf(level) else 0.5 if high == low else (level - low) / (high - low)
    mark = "" if place.trains is None else MARKS[place.trains]
    return (
        f'<rect class="gauge" x="{x:g}" y="{y:g}" width="{_WIDE}" height="{_HIGH}" rx="4" '
        f'fill-opacity="{_FAINT + (_STRONG - _FAINT) * share:.2f}"/>'
        f"{svg_text(number(value, digits=3), x + _WIDE / 2, y + 17, anchor='middle')}"
        f"{svg_text(mark, x + _WIDE / 2, y + 32, 'small', anchor='middle')}"
    )


def _frame(row: MapRow, layout: _MapLayout, *, y: float) -> str:
    """Draw a frame round the places up to the usable depth."""
    usable = row.usable
    inside = [
        at
        for at, place in enumerate(row.places)
        if place is not None and usable is not None and place.depth <= usable.depth
    ]
    if not inside:
        return ""
    x = layout.loss + inside[0] * (_WIDE + _GAP)
    width = (inside[-1] - inside[0] + 1) * (_WIDE + _GAP) - _GAP
    return (
        f'<rect class="usable" x="{x - 1:g}" y="{y - 1:g}" width="{width + 2:g}" '
        f'height="{_HIGH + 2}" rx="5"/>'
    )


def _key() -> str:
    return (
        f"{MARKS[True]} trains, {MARKS[False]} does not; the frame goes round the usable depths; "
        "? is a hole; the stronger the blue, the worse the gauge."
    )


def _tooltip(training_map: Trainability, row: MapRow, place: MapPlace) -> str:
    low, high = place.interval
    where = f"{row.name}, {training_map.axis} {depth_text(place.depth)}"
    if place.trains is None:
        return f"{where}: {hole_text(place)}"
    losses = ", ".join(number(cell.loss) for cell in place.measured)
    return (
        f"{where}: {place.trained} of {place.seeds} seeds train, probability {low:.2f} to "
        f"{high:.2f} (95 %); losses {losses}"
    )


def _spoken(training_map: Trainability) -> str:
    rows = "; ".join(f"{row.name}: {usable_text(row)}" for row in training_map.rows)
    return f"Map of what trains. Usable {training_map.axis}: {rows}"
