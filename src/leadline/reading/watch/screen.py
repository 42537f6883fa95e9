"""The screen of a run: how it is doing, warnings, the loss, the map of layers by steps, gauges.

    watch_screen(sight)                       # everything, for a pipe
    watch_screen(sight, height=24)            # what fits a terminal

The first line is the answer. What finds no room in a small terminal goes from the end: gauges first,
then rows of the map, then what is below the second and third warning; the answer and the worst
warning stay.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leadline.errors import UnknownName
from leadline.reading.watch.drawing import HeatDrawing
from leadline.reading.watch.gauge_rows import gauge_of, gauge_rows, most_telling, warned
from leadline.reading.watch.gauge_table import gauge_table
from leadline.reading.watch.heat import chosen_series, layer_series, loss_of
from leadline.reading.watch.state_words import answer_sentence, detail_sentence, state_sentence
from leadline.record.words.numbers import format_number, sparkline
from leadline.record.words.screen import Screen, Sentence
from leadline.record.words.table import TextTable
from leadline.record.words.text import SEVERITY
from leadline.record.words.watch_answer import below_warning, warning_place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.reading.watch.gauge_rows import GaugeRow
    from leadline.reading.watch.heat import LayerSeries
    from leadline.reading.watch.history import Series
    from leadline.reading.watch.sight import RunSight
    from leadline.record import Finding
    from leadline.record.words.screen import Drawing

__all__ = ["WatchView", "watch_view"]

FAR_MORE = 2.0
"""Another map takes the place of the one that is shown where it departs so many times as far."""
MOST_WARNINGS = 3
"""So many warnings are shown in full."""
MOST_LINES = 16
"""So many lines of cells a map has at most, where there is no terminal to fit."""
LEAST_LINES = 3
"""A map of fewer lines is left out."""
MOST_GAUGES = 12
"""So many gauges are shown where there is no terminal to fit."""
LEAST_GAUGES = 3
"""A table of fewer gauges is left out, unless there are no more."""
_AROUND_MAP = 5
"""Lines of a map beside its cells: title, loss, marks, steps, legend."""
ABOVE_STATE = 3
"""The sentence about the writer goes where fewer lines than these would be left above it."""
TALL = 34
"""From so many lines on the loss has three of them."""


@dataclass(frozen=True, eq=False)
class WatchView:
    """What is shown of a sight: the group on its map, the gauges, and the loss."""

    sight: RunSight
    group: LayerSeries | None
    gauges: tuple[GaugeRow, ...]
    loss: Series | None
    relative: bool = False

    def screen(self, *, width: int | None = None, height: int | None = None) -> Screen:
        """Return the screen: everything, or what fits into `height` lines of `width` columns."""
        answer, tail = self._answer(), [state_sentence(self.sight), detail_sentence(self.sight)]
        warnings = warning_sentences(self.sight.findings, file=self.sight.name)
        if height is None or width is None:
            body = self._body(MOST_LINES, MOST_GAUGES, 3)
            told = [one for group in warnings for one in group]
            return Screen((answer, *told, Sentence(), *body, *_dim(tail)))
        room = _Room(width, height)
        room.take(answer)
        state = _dim(tail if height >= TALL else tail[:1])
        if room.left - room.height(*state) < ABOVE_STATE:
            state = []
        room.take(*state)
        curve = 3 if height >= TALL else 1
        told = self._fitting_warnings(room, warnings, self._least_map(curve))
        blank = room.take(Sentence()) if room.left > 1 else []
        lines, gauges = self._shares(room, curve)
        return Screen((answer, *told, *blank, *self._body(lines, gauges, curve, width), *state))

    def _answer(self) -> Sentence:
        findings = self.sight.findings
        style = SEVERITY[findings[0].severity] if findings else "bold"
        return Sentence(answer_sentence(self.sight), style, hang=2)

    def _body(
        self, lines: int, gauges: int, curve: int, width: int | None = None
    ) -> list[Sentence | TextTable | Drawing]:
        """The map, or the loss alone where it has no room, and the gauges."""
        parts: list[Sentence | TextTable | Drawing] = []
        if self.group is not None and lines > 0:
            title = f"{self.group.title}  {self.group.address}"
            title = title if width is None else title[:width]
            parts += [Sentence(title, "bold"), self._drawing(self.group, lines, curve)]
        elif self.loss is not None and lines >= 0:
            parts.append(Sentence(_loss_line(self.loss, width)))
        if gauges and self.gauges:
            parts += [Sentence(), gauge_table(self.gauges[:gauges])]
        return parts

    def _least_map(self, curve: int) -> int:
        """The lines of the smallest map with the blank line above it; 0 without a map."""
        if self.group is None:
            return 0
        return min(len(self.group.series), LEAST_LINES) + _AROUND_MAP + curve

    def _fitting_warnings(
        self, room: _Room, warnings: Sequence[Sequence[Sentence]], map_lines: int
    ) -> list[Sentence]:
        """The worst warning as far as it fits, and the others as far as they leave room for a map.

        What is left out first is why, then what to do.
        """
        told: list[Sentence] = []
        for at, group in enumerate(warnings):
            kept_free = 0 if at == 0 or room.left < map_lines else map_lines
            head, *below = group
            brief = [one for one in below if one.text.startswith("  do:")]
            for lines in ([head, *below], [head, *brief], [head]):
                if room.height(*lines) <= room.left - kept_free:
                    told += room.take(*lines)
                    break
        return told

    def _shares(self, room: _Room, curve: int) -> tuple[int, int]:
        """Share what is left of a terminal between the map and the gauges, in lines and rows.

        No line for the map leaves the loss alone, and fewer than none not even that.
        """
        around = _AROUND_MAP + curve - 1
        needed = 0 if self.group is None else len(self.group.series)
        wanted = min(needed, room.left - around)
        if wanted < min(needed, LEAST_LINES) or not needed:
            if room.left < 1:
                return -1, 0
            return 0, self._fitting_gauges(room, room.left - 1)
        lines = min(wanted, max(LEAST_LINES, (2 * room.left) // 3 - around))
        gauges = self._fitting_gauges(room, room.left - lines - around)
        if gauges < min(LEAST_GAUGES, len(self.gauges)):
            return wanted, 0
        used = room.height(Sentence(), gauge_table(self.gauges[:gauges]))
        return min(needed, room.left - around - used), gauges

    def _fitting_gauges(self, room: _Room, left: int) -> int:
        """How many gauges fit into so many lines: in a narrow terminal a row may take several."""
        count = min(len(self.gauges), max(left - 2, 0))
        while count and room.height(Sentence(), gauge_table(self.gauges[:count])) > left:
            count -= 1
        return count

    def _drawing(self, group: LayerSeries, lines: int, curve: int) -> HeatDrawing:
        findings = tuple(self.sight.findings)
        return HeatDrawing(group, lines, self.loss, curve, findings, relative=self.relative)


def watch_view(
    sight: RunSight,
    *,
    quantity: str | None = None,
    before: str | None = None,
    relative: bool = False,
) -> WatchView:
    """Choose what is shown of a sight.

    The map is that of `quantity`, an address such as update.ratio[mlp]. Without one it is what the
    worst warning speaks of; without a warning what has departed most from its past. The map of the
    address `before` stays, so that it does not change under the reader's eyes without need.
    """
    groups = layer_series(sight.history)
    return WatchView(
        sight,
        _chosen_group(groups, sight, quantity, before),
        tuple(gauge_rows(sight.history, groups, sight.findings)),
        loss_of(sight.history),
        relative,
    )


def _chosen_group(
    groups: Sequence[LayerSeries], sight: RunSight, quantity: str | None, before: str | None
) -> LayerSeries | None:
    if quantity is not None:
        named = chosen_series(groups, quantity)
        if not named and groups:
            known = [str(group.address) for group in groups]
            raise UnknownName("quantity over layers and steps of this record", quantity, known)
        groups = named
    ordered = most_telling(groups, sight.findings)
    if not ordered:
        return None
    same = [group for group in groups if str(group.address) == before]
    if same and not _outweighs(ordered[0], same[0], sight.findings):
        return same[0]
    return ordered[0]


def _outweighs(best: LayerSeries, shown: LayerSeries, findings: Sequence[Finding]) -> bool:
    """Whether the map changes under the reader's eyes: for a warning, or for what departs far more."""
    if warned(best, findings) is not None:
        return True
    return gauge_of(best).telling > FAR_MORE * max(gauge_of(shown).telling, 1.0)


def warning_sentences(findings: Sequence[Finding], *, file: str = "") -> list[list[Sentence]]:
    """Return the worst warnings: what, where and since when, and below each what to do."""
    groups: list[list[Sentence]] = []
    for finding in findings[:MOST_WARNINGS]:
        words = [finding.severity, finding.code, finding.verdict]
        text = ": ".join(word for word in words if word)
        place = warning_place(finding, unless_in=finding.verdict)
        text = f"{text} ({place})" if place else text
        group = [Sentence(text, SEVERITY[finding.severity], hang=2)]
        groups.append([*group, *below_warning(finding)])
    hidden = len(findings) - len(findings[:MOST_WARNINGS])
    if hidden:
        command = f"leadline report {file or 'FILE'} --all"
        groups.append([Sentence(f"{hidden} more: `{command}`", "dim")])
    return groups


class _Room:
    """The lines that are left of a terminal."""

    def __init__(self, width: int, lines: int) -> None:
        self._width = width
        self.left = lines

    def height(self, *parts: Sentence | TextTable) -> int:
        """How many lines parts take."""
        return sum(self._height_of(part) for part in parts)

    def take(self, *parts: Sentence) -> list[Sentence]:
        """Take the lines of parts, and return these."""
        self.left -= self.height(*parts)
        return list(parts)

    def _height_of(self, part: Sentence | TextTable) -> int:
        if isinstance(part, TextTable):
            return len(part.text(self._width).split("\n"))
        indent = " " * min(part.hang, self._width // 2)
        lines = textwrap.wrap(
            part.text, self._width, break_on_hyphens=False, subsequent_indent=indent
        )
        return len(lines) or 1


def _dim(sentences: Sequence[str]) -> list[Sentence]:
    return [Sentence(one, "dim", hang=2) for one in sentences if one]


def _loss_line(loss: Series, width: int | None) -> str:
    now = format_number(loss.last, digits=3)
    room = (width or 80) - len(f"loss  {now}")
    return f"loss {sparkline(loss.values, scale='log', width=max(1, room))} {now}"
