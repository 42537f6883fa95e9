"""The map of layers by steps on a terminal, in plain text and in a notebook, with the loss above.

On a terminal with 256 colours or more a cell is a coloured field, two layers to a line where all
of them do not fit otherwise. Elsewhere every row is a line of bars, from the lowest to the highest
value of the whole map, so that nothing rests on colour. Below stand the steps and where warnings
began.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from leadline.reading.show.ramp import as_terminal_colours, ramp, two_sided_ramp
from leadline.reading.watch.gauge_rows import gauge_of
from leadline.reading.watch.heat import heat_map, merge_rows, row_parts, series_by_column
from leadline.reading.watch.shading import LOST, UNKNOWN, shade
from leadline.record.run.trend import trend_of
from leadline.record.words.numbers import BARS, PLAIN_BARS, format_number, heights
from leadline.record.words.printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from rich.console import Console

    from leadline.reading.watch.heat import HeatMap, LayerSeries
    from leadline.reading.watch.history import Series
    from leadline.reading.watch.shading import Shading
    from leadline.record import Finding

__all__ = ["HeatDrawing", "TerminalLine"]

TerminalLine = list[tuple[str, str]]
"""The pieces of a line, each with its style."""

TEXT_WIDTH = 100
"""How wide it is where there is no terminal."""
COLOURS = 16
"""So many shades a terminal shows."""
LEAST_COLUMNS = 10
"""A map of fewer columns tells nothing."""
_LABEL = 24
"""Longer names of rows are cut at their beginning, where names of tensors are alike."""
_LOST_SIGN, _PLAIN_LOST = "×", "x"
_MARK, _PLAIN_MARK = "▲", "^"
_PLAIN = str.maketrans({"×": "x", "…": "~"})
_RICH = ("256", "truecolor")


@dataclass(frozen=True, eq=False)
class HeatDrawing:
    """A map that draws itself in at most `lines` lines of cells, with the loss above."""

    group: LayerSeries
    lines: int = 12
    loss: Series | None = None
    loss_lines: int = 1
    findings: tuple[Finding, ...] = ()
    relative: bool = False

    def text(self) -> str:
        """Return it as plain text."""
        drawn = self.drawn(TEXT_WIDTH)
        return "\n".join("".join(piece for piece, _ in line).rstrip() for line in drawn)

    def show(self, console: Console) -> None:
        """Print it as wide as the terminal; into a pipe as plain text."""
        from rich.text import Text

        width = console.width if console.is_terminal else TEXT_WIDTH
        plain = not _can_show(console)
        colours = console.color_system if console.is_terminal and not plain else None
        for line in self.drawn(width, colours=colours, plain=plain):
            console.print(Text.assemble(*line), soft_wrap=True)

    def html(self) -> str:
        """Return it as a picture."""
        from leadline.reading.watch.picture import heat_picture

        return heat_picture(self.group, loss=self.loss, findings=self.findings)

    def drawn(
        self, width: int, *, colours: str | None = None, plain: bool = False
    ) -> list[TerminalLine]:
        """Return its lines, with the `colours` of a terminal; `plain` has no sign beyond ASCII."""
        colour = colours in _RICH
        count = len(self.group.series)
        rows_of_line = 2 if colour and count > self.lines else 1
        parts = row_parts(count, self.lines * rows_of_line)
        lines = [parts[at : at + rows_of_line] for at in range(0, len(parts), rows_of_line)]
        names = [_line_name(self.group, line) for line in lines]
        notes = {
            at: note
            for row, note in _notes(self.group).items()
            for at, line in enumerate(lines)
            if any(row in part for part in line)
        }
        label = max(4, *map(len, names))
        beside = [*notes.values(), *([self._loss_now] if self.loss is not None else [])]
        aside = max((len(note) + 2 for note in beside), default=0)
        if width - label - 1 - aside < LEAST_COLUMNS:
            aside, notes = 0, {}
        columns = max(width - label - 1 - aside, LEAST_COLUMNS)
        heat = heat_map(self.group, columns=columns, span=self._span())
        heat = merge_rows(heat, self.lines * rows_of_line)
        shading = shade(heat, COLOURS if colour else len(BARS), relative=self.relative)
        stretch = _Stretch(columns, heat.values.shape[1])
        palette = _palette(shading, colours) if colour else ()
        painted = (
            _coloured(shading, stretch, palette, rows_of_line)
            if colour
            else _barred(shading, stretch, plain)
        )
        drawn = self._loss(heat, stretch, label, noted=aside > 0, plain=plain)
        for at, (name, line) in enumerate(zip(names, painted, strict=True)):
            note = [(f"  {notes[at]}", "bold")] if at in notes else []
            drawn.append([(f"{name:>{label}} ", "dim"), *line, *note])
        drawn += self._axis(heat, stretch, label, plain=plain)
        drawn.append(_legend(shading, label, palette, width=width, plain=plain))
        if plain:
            drawn = [[(text.translate(_PLAIN), style) for text, style in line] for line in drawn]
        return drawn

    def _span(self) -> tuple[int, int]:
        """The steps of the axis: those of the loss too, which is read at every update."""
        first, last = self.group.first, self.group.last
        if self.loss is None:
            return first, last
        return min(first, int(self.loss.steps[0])), max(last, self.loss.last_step)

    def _loss(
        self, heat: HeatMap, stretch: _Stretch, label: int, *, noted: bool, plain: bool
    ) -> list[TerminalLine]:
        if self.loss is None or not self.loss_lines:
            return []
        # It has more points than the map has columns.
        ends = float(heat.edges[0]), float(heat.edges[-1])
        edges = np.linspace(ends[0], ends[1], stretch.width + 1)
        values = series_by_column(self.loss, edges)
        bars = bar_lines(values, self.loss_lines, PLAIN_BARS if plain else BARS)
        drawn: list[TerminalLine] = []
        for at, bar in enumerate(bars):
            last = at == len(bars) - 1
            name = "loss" if last else ""
            now = f"  {self._loss_now}" if last and noted else ""
            drawn.append([(f"{name:>{label}} ", "dim"), (bar, "cyan"), (now, "bold")])
        return drawn

    @property
    def _loss_now(self) -> str:
        """The level of the loss, as the answer says it."""
        assert self.loss is not None
        trend = trend_of(self.loss.steps, self.loss.values)
        return format_number(self.loss.last if trend is None else trend.now, digits=3)

    def _axis(
        self, heat: HeatMap, stretch: _Stretch, label: int, *, plain: bool
    ) -> list[TerminalLine]:
        marks = _marks(self.findings, heat, stretch, plain=plain)
        lines: list[TerminalLine] = (
            [[(" " * (label + 1), ""), (marks, "bold yellow")]] if marks else []
        )
        first, last = (f"{int(step):,}" for step in (heat.edges[0], heat.edges[-1] - 1))
        middle = f"{int((heat.edges[0] + heat.edges[-1]) / 2):,}"
        width = stretch.width
        text = f"{first}{last:>{max(1, width - len(first))}}"
        at = (width - len(middle)) // 2
        if at > len(first) + 2 and at + len(middle) + 2 < width - len(last):
            text = f"{text[:at]}{middle}{text[at + len(middle) :]}"
        lines.append([(f"{'step':>{label}} ", "dim"), (text, "dim")])
        return lines


def bar_lines(values: NDArray[np.float64], lines: int, bars: str = BARS) -> list[str]:
    """Draw a curve in several lines of bars, the highest line first; a gap where none is finite."""
    level, (bottom, top) = heights(values, scale="log")
    share = np.clip((level - bottom) / (top - bottom), 0.0, 1.0)
    drawn: list[str] = []
    for line in range(lines - 1, -1, -1):
        signs = ""
        for one in share:
            filled = float(one) * lines - line if math.isfinite(one) else math.nan
            if math.isnan(filled):
                signs += "·" if bars == BARS and not line else "?" if not line else " "
            elif filled <= 0 and line:
                signs += " "
            else:
                signs += bars[min(max(int(filled * len(bars)), 0), len(bars) - 1)]
        drawn.append(signs)
    return drawn


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Spreads the columns of a map over the columns of a terminal, where there are fewer."""

    width: int
    columns: int

    @property
    def places(self) -> NDArray[np.int64]:
        """The column of the map at every column of the terminal."""
        return np.arange(self.width, dtype=np.int64) * self.columns // self.width

    def text(self, signs: str) -> str:
        """Spread a line of signs."""
        return "".join(signs[at] for at in self.places)

    def place(self, column: int) -> int:
        """The first column of the terminal at which a column of the map stands."""
        return -(-column * self.width // self.columns)


def _palette(shading: Shading, colours: str | None) -> tuple[str, ...]:
    """The colours of the shades, as the terminal can show them."""
    palette = (two_sided_ramp if shading.relative else ramp)(shading.count, "dark")
    return as_terminal_colours(palette) if colours == "256" else palette


def _coloured(
    shading: Shading, stretch: _Stretch, palette: Sequence[str], rows_of_line: int
) -> list[TerminalLine]:
    """Fields of colour, one or two rows of the map to a line."""

    def colour(value: int) -> str:
        return "" if value == UNKNOWN else "red" if value == LOST else palette[value]

    lines: list[TerminalLine] = []
    for top in range(0, len(shading.shades), rows_of_line):
        pair = shading.shades[top : top + rows_of_line][:, stretch.places]
        line: TerminalLine = []
        for cell in pair.T:
            above = colour(int(cell[0]))
            below = colour(int(cell[1])) if len(cell) > 1 else above if rows_of_line == 1 else ""
            line.append(_field(above, below))
        lines.append(_joined(line))
    return lines


def _field(above: str, below: str) -> tuple[str, str]:
    """One column of a line: its upper half in one colour, its lower half in another."""
    if above == below:
        return (" ", f"on {above}") if above else (" ", "")
    if not above:
        return "▄", below
    return "▀", f"{above} on {below}" if below else above


def _barred(shading: Shading, stretch: _Stretch, plain: bool) -> list[TerminalLine]:
    bars = PLAIN_BARS if plain else BARS
    lost = _PLAIN_LOST if plain else _LOST_SIGN
    lines: list[TerminalLine] = []
    for row in shading.shades:
        signs = "".join(
            lost if value == LOST else " " if value == UNKNOWN else bars[value] for value in row
        )
        lines.append([(stretch.text(signs), "cyan")])
    return lines


def _joined(line: TerminalLine) -> TerminalLine:
    """Join neighbours of one style."""
    joined: TerminalLine = []
    for sign, style in line:
        if joined and joined[-1][1] == style:
            joined[-1] = (joined[-1][0] + sign, style)
        else:
            joined.append((sign, style))
    return joined


def _line_name(group: LayerSeries, line: Sequence[Sequence[int]]) -> str:
    """The name of a line: of its row, or of the first and the last of several."""
    members = [member for part in line for member in part]
    first, last = (_cut(printable(group.labels[members[at]])) for at in (0, -1))
    return first if len(members) == 1 else f"{first}-{last}"


def _notes(group: LayerSeries) -> dict[int, str]:
    """What is said beside the row that departs most from its past: its value now, and how far."""
    row = gauge_of(group)
    worst = row.worst
    if worst is None or math.isnan(worst.past):
        return {}
    now = format_number(worst.value, digits=3)
    change = ""
    if group.quantity.scale == "log" and worst.past > 0 and math.isfinite(worst.value):
        change = f" ×{format_number(worst.value / worst.past, digits=2)}"
    return {group.labels.index(worst.label): f"{_cut(printable(worst.label))}: {now}{change}"}


def _marks(findings: Sequence[Finding], heat: HeatMap, stretch: _Stretch, *, plain: bool) -> str:
    """A sign at the step since which each warning holds, with its code where there is room."""
    sign = _PLAIN_MARK if plain else _MARK
    codes: dict[int, str] = {}
    for finding in findings:
        since = finding.details.get("since")
        if isinstance(since, int):
            place = min(stretch.place(heat.column_of(since)), stretch.width - 1)
            codes.setdefault(place, printable(finding.code))
    line = ""
    places = sorted(codes)
    for at, place in enumerate(places):
        code = codes[place]
        end = places[at + 1] if at + 1 < len(places) else stretch.width
        if place + 1 + len(code) <= end:  # to the right of its sign, or to the left
            line = f"{line:<{place}}{sign}{code}"
        elif len(line) + len(code) < place:
            line = f"{line:<{place - len(code)}}{code}{sign}"
        else:
            line = f"{line:<{place}}{sign}"
    return line


def _legend(
    shading: Shading, label: int, palette: Sequence[str], *, width: int, plain: bool
) -> TerminalLine:
    blank = " " * (label + 1)
    if shading.zeros == "all":
        return [(f"{blank}every value is 0", "dim")]
    low, high = shading.number(shading.low), shading.number(shading.high)
    low = f"0, {low}" if shading.zeros == "some" else low
    scale = [(" ", f"on {colour}") for colour in palette]
    scale = scale or [(PLAIN_BARS if plain else BARS, "cyan")]
    kind = "logarithmic" if shading.logarithmic else "linear"
    about = ", against each layer's median" if shading.relative else f", {kind}"
    used = len(blank) + len(low) + len(high) + 2 + sum(len(sign) for sign, _ in scale)
    ending = f" {high}{about if used + len(about) <= width else ''}"
    return [(f"{blank}{low} ", "dim"), *scale, (ending, "dim")]


def _cut(name: str) -> str:
    return name if len(name) <= _LABEL else f"…{name[-(_LABEL - 1) :]}"


def _can_show(console: Console) -> bool:
    """Whether the output can carry signs beyond ASCII."""
    try:
        f"{BARS}{_MARK}{_LOST_SIGN}▀▄".encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
