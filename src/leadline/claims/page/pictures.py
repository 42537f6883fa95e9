"""The pictures of the page of claims as SVG: curves of all seeds, and checks as strips.

No word stands in a picture, only numbers: labels and keys are text of the page, which other
languages replace. Curves of several seeds over the same places are drawn as their median, with a
band from the smallest to the largest; where the places differ (drawn points, ellipses), the first
seed is drawn. A line that another one covers is broad and light, so that both are seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from leadline.reading.show.svg import (
    PictureAxis,
    axis_frame,
    covers,
    fit_axis,
    line_pieces,
    path_of,
    short,
)

if TYPE_CHECKING:
    from leadline.claims.claim import Picture
    from leadline.claims.ruling import Checked

__all__ = ["CurveSeries", "Curves", "curves", "strip", "swatch", "swatch_of"]

COLOURS = 7
"""So many colours the page has; then they come again with another dash."""
WIDTH, HEIGHT = 360, 236
LEFT, RIGHT, TOP, BOTTOM = 48, 10, 8, 26
DOTTED = 26
"""Lines of no more values than this show them as dots."""
SOME = 6
"""So many marks stand on a longer line."""
SQUARE = 330
"""The side of a picture whose axes have the same unit."""
COVERED = 2.5
"""A line hides another that is nowhere farther from it than this."""


@dataclass(frozen=True)
class CurveSeries:
    """One line of a picture, the seeds put together."""

    name: str
    x: tuple[float, ...]
    middle: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    faint: bool
    points: bool
    marked: bool
    """Whether marks stand on the line; a geometric figure has none."""
    index: int


@dataclass(frozen=True)
class Curves:
    """A drawn picture and what has to be said about it."""

    svg: str
    series: tuple[CurveSeries, ...]
    seeds: int
    """How many seeds stand in the lines: 1 where only the first is drawn."""
    lost: int
    """How many values are zero or negative on a logarithmic axis, or not finite."""


def together(pictures: Sequence[Picture]) -> tuple[tuple[CurveSeries, ...], int]:
    """The lines of all seeds; the number of seeds that are in them."""
    first = pictures[0]
    shared = not first.points and all(
        list(picture.lines) == list(first.lines)
        and all(picture.lines[name][0] == x for name, (x, _) in first.lines.items())
        for picture in pictures
    )
    chosen = list(pictures) if shared else [first]
    found: list[CurveSeries] = []
    for index, (name, (x, _)) in enumerate(first.lines.items()):
        values = np.array([picture.lines[name][1] for picture in chosen], dtype=np.float64)
        # Of an even number of seeds the mean of the two in the middle; gaps stay gaps.
        middle, low, high = np.median(values, axis=0), values.min(axis=0), values.max(axis=0)
        faint = name in first.faint
        found.append(
            CurveSeries(
                name,
                x,
                tuple(map(float, middle)),
                tuple(map(float, low)),
                tuple(map(float, high)),
                faint,
                first.points and not faint,
                not faint and not first.equal,
                index,
            )
        )
    return tuple(found), len(chosen)


def curves(pictures: Sequence[Picture]) -> Curves:
    """Draw the pictures of all seeds as one."""
    first = pictures[0]
    series, seeds = together(pictures)
    x_values = [v for one in series for v in one.x]
    y_values = [v for one in series for v in (*one.low, *one.high)]
    if first.equal:
        width, height, across, up = _square(x_values, y_values)
    else:
        width, height = WIDTH, HEIGHT
        across = fit_axis(
            x_values,
            scale="log" if first.x_log else "linear",
            start=LEFT,
            end=WIDTH - RIGHT,
            room=0.02,
        )
        up = fit_axis(
            y_values,
            scale="log" if first.y_log else "linear",
            start=HEIGHT - BOTTOM,
            end=TOP,
            room=0.05,
        )
    parts = [_frame(across, up, width=width, cross=first.equal)]
    covered = [_covered(one, series, across, up) for one in series]
    parts += [_band(one, across, up) for one in series if seeds > 1]
    parts += [
        _line(one, across, up, broad=broad) for one, broad in zip(series, covered, strict=True)
    ]
    lost = sum(
        not (across.shows(x) and up.shows(y))
        for one in series
        for x, y in zip(one.x, one.middle, strict=True)
    )
    svg = (
        f'<svg class="curves" viewBox="0 0 {width} {height}" aria-hidden="true" '
        f'style="max-width:{width * 1.2:.0f}px">{"".join(parts)}</svg>'
    )
    return Curves(svg, series, seeds, lost)


def swatch(one: CurveSeries) -> str:
    """A short piece of a line for the key of the picture."""
    if one.points:
        return swatch_of(_mark(one, 15, 6, 4))
    dot = _mark(one, 15, 6, 3) if one.marked else ""
    return swatch_of(f'<path class="line {_kind(one)}" d="M1 6H29"/>{dot}')


def swatch_of(inside: str) -> str:
    """A small drawing beside a name of the key."""
    return f'<svg class="swatch" viewBox="0 0 30 12" aria-hidden="true">{inside}</svg>'


def _square(
    x_values: Sequence[float], y_values: Sequence[float]
) -> tuple[int, int, PictureAxis, PictureAxis]:
    """Axes with the same unit in a picture that is as high as it must be."""
    across = fit_axis(x_values, start=30, end=SQUARE - 8, room=0.06)
    up = fit_axis(y_values, start=1, end=0, room=0.06)
    unit = (SQUARE - 38) / (across.high - across.low)
    tall = unit * (up.high - up.low)
    if tall > SQUARE:  # as wide as it must be, then
        unit *= SQUARE / tall
        tall = float(SQUARE)
        middle, half = (across.low + across.high) / 2, (SQUARE - 38) / unit / 2
        across = PictureAxis(middle - half, middle + half, 30, SQUARE - 8)
    height = round(tall) + 8 + 22
    return SQUARE, height, across, PictureAxis(up.low, up.high, height - 22, 8)


def _frame(across: PictureAxis, up: PictureAxis, *, width: int, cross: bool) -> str:
    origin = ""
    if cross and across.low < 0 < across.high and up.low < 0 < up.high:
        origin = (
            f'<path class="axis" d="M{across.at(0):.1f} {up.start:g}V{up.end:g}'
            f'M{across.start:g} {up.at(0):.1f}H{across.end:g}"/>'
        )
    return origin + axis_frame(
        across, up, stations=across.ticks(6), levels=up.ticks(), drop=16, edge=width - 2
    )


# --- lines -----------------------------------------------------------------------------------


def _kind(one: CurveSeries) -> str:
    """The classes of a line: its colour, and the dash of what it is compared with."""
    dash = f" dash d{one.index % 4}" if one.faint else " dots" if one.index >= COLOURS else ""
    return f"c{one.index % COLOURS}{dash}"


def _line(one: CurveSeries, across: PictureAxis, up: PictureAxis, *, broad: bool) -> str:
    pieces = line_pieces(one.x, one.middle, across, up)
    kind = _kind(one)
    size = 3.4 if one.points else 2.6
    marks = "".join(_mark(one, x, y, size) for x, y in _marked(one, pieces))
    if one.points:
        return marks
    drawn = "".join(path_of(piece) for piece in pieces if len(piece) > 1)
    wide = " broad" if broad else ""
    return (f'<path class="line {kind}{wide}" d="{drawn}"/>' if drawn else "") + marks


def _marked(
    one: CurveSeries, pieces: Sequence[Sequence[tuple[float, float]]]
) -> list[tuple[float, float]]:
    """The points that show a mark: all of few, some of many, elsewhere on each line."""
    points = [point for piece in pieces for point in piece]
    if one.points or (one.marked and len(one.x) <= DOTTED):
        return points
    if one.marked:
        step = math.ceil(len(points) / SOME)
        return points[(one.index * 2 + 1) * step // 8 % step :: step] if points else []
    return [piece[0] for piece in pieces if len(piece) == 1]


def _mark(one: CurveSeries, x: float, y: float, size: float) -> str:
    """A mark whose shape tells lines apart where colour does not."""
    kind, shape = f"dot c{one.index % COLOURS}", one.index % 4
    a, b = short(x), short(y)
    if shape == 0:
        return f'<circle class="{kind}" cx="{a}" cy="{b}" r="{size}"/>'
    if shape == 1:
        return f'<path class="{kind}" d="M{short(x - size)} {short(y - size)}h{2 * size:g}v{2 * size:g}h-{2 * size:g}z"/>'
    if shape == 2:
        r = 1.3 * size
        return f'<path class="{kind}" d="M{a} {short(y - r)}l{r:.1f} {r:.1f}-{r:.1f} {r:.1f}-{r:.1f}-{r:.1f}z"/>'
    r = 1.2 * size
    return f'<path class="{kind}" d="M{a} {short(y - r)}l{r:.1f} {1.8 * r:.1f}h-{2 * r:.1f}z"/>'


def _band(one: CurveSeries, across: PictureAxis, up: PictureAxis) -> str:
    """From the smallest to the largest of the seeds; left out where it is thinner than the line."""
    # Where one edge has no place on the axis the band has none either.
    shown = [up.shows(a) and up.shows(b) for a, b in zip(one.low, one.high, strict=True)]
    low = line_pieces(
        one.x, [v if s else math.nan for v, s in zip(one.low, shown, strict=True)], across, up
    )
    high = line_pieces(
        one.x, [v if s else math.nan for v, s in zip(one.high, shown, strict=True)], across, up
    )
    drawn: list[str] = []
    for bottom, top in zip(low, high, strict=True):
        if len(top) > 1 and max(b[1] - t[1] for b, t in zip(bottom, top, strict=True)) > 1.5:
            drawn.append(path_of([*top, *reversed(bottom)]) + "z")
    return f'<path class="band c{one.index % COLOURS}" d="{"".join(drawn)}"/>' if drawn else ""


def _covered(
    one: CurveSeries, series: Sequence[CurveSeries], across: PictureAxis, up: PictureAxis
) -> bool:
    """Whether a line that is drawn later lies on this one."""
    pieces = line_pieces(one.x, one.middle, across, up)
    return any(
        later.x == one.x
        and not later.points
        and covers(line_pieces(later.x, later.middle, across, up), pieces, COVERED)
        for later in series[one.index + 1 :]
    )


WIDE_RANGE = 30.0
"""Positive numbers that lie farther apart than this factor stand on a logarithmic strip."""


def strip(checked: Checked) -> str:
    """The numbers of a check on a line, with the allowed side shaded and the limit marked."""
    check = checked.check
    finite = [v for v in checked.values if math.isfinite(v)]
    ends = [v for v in (checked.lower, checked.upper) if math.isfinite(v)]
    near = check.relation == "near"
    limits = [check.limit - check.within, check.limit + check.within] if near else [check.limit]
    every = [*finite, *ends, *limits]
    positive = min(every) > 0
    log = positive and (check.log or max(every) / min(every) > WIDE_RANGE)
    scale = "log" if log else "linear"
    axis = fit_axis(every, scale=scale, start=10, end=290, room=0.14, least=0.1)
    left = 2.0 if check.lower == -math.inf else axis.at(check.lower)
    right = 298.0 if check.upper == math.inf else axis.at(check.upper)
    if right - left < 2:
        left, right = left - 1, right + 1
    parts = [
        f'<rect class="allowed" x="{left:.1f}" y="3" width="{right - left:.1f}" height="18"/>',
        '<path class="base" d="M2 12H298"/>',
    ]
    if log:
        low, high = math.log10(axis.low), math.log10(axis.high)
        step = max(1, math.ceil((high - low) / 12))
        at = [
            axis.at(10.0**p)
            for p in range(math.ceil(low / step) * step, math.floor(high) + 1, step)
        ]
        parts.append(f'<path class="tick" d="{"".join(f"M{x:.1f} 9.5v5" for x in at)}"/>')
    parts += [f'<path class="limit" d="M{axis.at(v):.1f} 1V23"/>' for v in limits if axis.shows(v)]
    kind = {"holds": "good", "fails": "bad", "undecided": "open"}[checked.outcome]
    if len(ends) == 2 and axis.at(ends[1]) - axis.at(ends[0]) > 0.5:
        parts.append(
            f'<path class="interval {kind}" d="M{axis.at(ends[0]):.1f} 12H{axis.at(ends[1]):.1f}"/>'
        )
    if len(finite) > 1:
        parts += [f'<circle class="seed" cx="{axis.at(v):.1f}" cy="12" r="1.8"/>' for v in finite]
    if len(finite) == len(checked.values):
        parts.append(_outcome_mark(kind, axis.at(min(max(checked.mean, axis.low), axis.high))))
    else:
        parts.append(_edge(checked.values, kind))
    return f'<svg class="strip-line" viewBox="0 0 300 24" aria-hidden="true">{"".join(parts)}</svg>'


def _outcome_mark(kind: str, x: float) -> str:
    if kind == "good":
        return f'<circle class="mark good" cx="{x:.1f}" cy="12" r="5"/>'
    if kind == "bad":
        return f'<path class="mark bad" d="M{x - 4.5:.1f} 7.5l9 9m0-9l-9 9"/>'
    return f'<path class="mark open" d="M{x:.1f} 6l5.5 10h-11z"/>'


def _edge(values: Sequence[float], kind: str) -> str:
    """An arrow beyond the edge for what is infinite; a cross in the middle for what is no number."""
    if any(math.isnan(v) for v in values):
        return '<path class="mark bad" d="M145.5 7.5l9 9m0-9l-9 9"/>'
    if any(v > 0 and math.isinf(v) for v in values):
        return f'<path class="mark arrow {kind}" d="M284 6l12 6-12 6z"/>'
    return f'<path class="mark arrow {kind}" d="M16 6l-12 6 12 6z"/>'
