"""The anatomy of a model as a drawing, and small lines over depth, all as inline SVG.

The stream runs from top to bottom. A sublayer leaves it to the right, passes its branch and
returns at a plus sign. Norms stand where the placement puts them: before the branch (`pre`), on
its output (`output`), on both sides (`sandwich`) or on the stream after the addition (`post`).
Parallel sublayers leave at one point and return at one plus sign. Lanes of a multi-stream model
are parallel lines. Equal blocks in a row, or patterns of blocks in turn, are drawn once with how
often they come.
"""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING

from leadline.reading.show.blocks import fold_blocks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leadline.reading.show.blocks import BlockFacts, Fold, WriteFacts

__all__ = ["anatomy_drawing", "sparkline"]

_STREAM = 62
_LEFT, _RIGHT = 106, 350
_WIDTH = 374
_LOOP = 48
_MOST_FOLDS = 12
"""Further blocks are counted, not drawn."""
_MOST_LANES = 8
"""Further lanes are not drawn: they would reach the branches."""


def anatomy_drawing(
    blocks: Sequence[BlockFacts], *, lanes: int = 1, colours: Mapping[str, str]
) -> str:
    """Draw the blocks of one stack. `colours` maps a role to a CSS colour."""
    pen = _AnatomyPen(lanes=max(1, lanes), colours=colours)
    folds = fold_blocks(blocks)
    pen.begin("enters layer 1")
    for fold in folds[:_MOST_FOLDS]:
        _draw_fold(pen, fold)
    if len(folds) > _MOST_FOLDS:
        left = sum(len(turn) for fold in folds[_MOST_FOLDS:] for turn in fold.turns)
        pen.text(_LEFT, pen.y + 14, f"… and {left} more layers", "fine")
        pen.y += 30
    depth = blocks[-1].layer if blocks else 0
    pen.end(f"leaves layer {depth}")
    return pen.finish(_spoken(blocks, folds))


def sparkline(values: Sequence[float], *, log: bool = False) -> str:
    """Draw a line without axes; values that are not finite are gaps."""
    usable = [math.isfinite(value) and (not log or value > 0) for value in values]
    heights = [
        math.log(value) if log and fine else value
        for value, fine in zip(values, usable, strict=True)
    ]
    finite = [height for height, fine in zip(heights, usable, strict=True) if fine]
    if not finite:
        return '<svg class="spark" viewBox="0 0 120 28" aria-hidden="true"></svg>'
    low, high = min(finite), max(finite)
    # A line that moves by less than a fifth shall not look steep.
    least = math.log(1.2) if log else 0.2 * max(abs(low), abs(high))
    span = max(high - low, least) or 1.0
    middle = (low + high) / 2
    step = 116 / max(1, len(values) - 1)
    runs: list[list[str]] = [[]]
    for at, (height, fine) in enumerate(zip(heights, usable, strict=True)):
        if fine:
            level = 14 - 22 * (height - middle) / span
            runs[-1].append(f"{2 + step * at:.1f},{level:.1f}")
        elif runs[-1]:
            runs.append([])
    lines = "".join(
        f'<polyline points="{" ".join(run)}"/>'
        if len(run) > 1
        else f'<circle cx="{run[0].split(",")[0]}" cy="{run[0].split(",")[1]}" r="2"/>'
        for run in runs
        if run
    )
    return (
        '<svg class="spark" viewBox="0 0 120 28" preserveAspectRatio="none" aria-hidden="true">'
        f"{lines}</svg>"
    )


class _AnatomyPen:
    """Collects SVG elements while moving down the page."""

    def __init__(self, *, lanes: int, colours: Mapping[str, str]) -> None:
        self.y = 6.0
        self.lanes = lanes
        self.colours = colours
        self.spread = 3.0 * (min(lanes, _MOST_LANES) - 1)
        self._back: list[str] = []
        self._front: list[str] = []
        self._top = self._bottom = 0.0

    def add(self, element: str) -> None:
        self._front.append(element)

    def frame(self, top: float, bottom: float) -> None:
        self._back.append(
            f'<rect class="frame" x="8" y="{top:g}" width="{_WIDTH - 16}" '
            f'height="{bottom - top:g}" rx="10"/>'
        )

    def text(self, x: float, y: float, text: str, kind: str = "", *, anchor: str = "start") -> None:
        self.add(
            f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">'
            f"{html.escape(text)}</text>"
        )

    def wire(self, path: str) -> None:
        self.add(f'<path class="wire" d="{path}"/>')

    def box(self, x: float, y: float, width: float, label: str, *, colour: str = "") -> None:
        kind = f'class="branch" style="--c:{colour}"' if colour else 'class="norm"'
        self.add(
            f'<rect {kind} x="{x:g}" y="{y - 13:g}" width="{width:g}" height="26" '
            f'rx="{6 if colour else 13}"/>'
        )
        self.text(x + width / 2, y + 4.5, label, "" if colour else "fine", anchor="middle")

    def across(self, y: float, *, half: float, kind: str) -> None:
        """A rounded piece that lies across all lanes."""
        wide = self.spread + half
        self.add(
            f'<rect class="{kind}" x="{_STREAM - wide:g}" y="{y - half:g}" width="{2 * wide:g}" '
            f'height="{2 * half:g}" rx="{half:g}"/>'
        )

    def plus(self, y: float) -> None:
        tip = _STREAM + self.spread + 10
        self.add(f'<path class="tip" d="M{tip:g} {y:g}l7 -4v8z"/>')
        self.across(y, half=9, kind="plus")
        self.wire(f"M{_STREAM - 5} {y:g}h10M{_STREAM} {y - 5:g}v10")

    def begin(self, label: str) -> None:
        self._top = self.y + 8
        self.across(self.y + 8, half=7, kind="end")
        more = f", {self.lanes} lanes" if self.lanes > 1 else ""
        self.text(_LEFT - 14, self.y + 13, f"{label}{more}", "fine")
        self.y += 28

    def end(self, label: str) -> None:
        self._bottom = self.y + 10
        wide = self.spread + 9
        self.add(
            f'<path class="end" d="M{_STREAM - wide:g} {self.y + 8:g}h{2 * wide:g}l{-wide:g} 13z"/>'
        )
        self.text(_LEFT - 14, self.y + 17, label, "fine")
        self.y += 28

    def finish(self, spoken: str) -> str:
        shown = min(self.lanes, _MOST_LANES)
        kind = "stream" if shown == 1 else "lane"
        lines = "".join(
            f'<path class="{kind}" d="M{_STREAM + 6 * (at - (shown - 1) / 2):g} {self._top:g}'
            f'V{self._bottom:g}"/>'
            for at in range(shown)
        )
        return (
            f'<svg viewBox="0 0 {_WIDTH} {self.y:g}" role="img" aria-label="{html.escape(spoken)}">'
            f"{''.join(self._back)}{lines}{''.join(self._front)}</svg>"
        )


def _draw_fold(pen: _AnatomyPen, fold: Fold) -> None:
    top = pen.y
    pattern = fold.turns[0]
    first, last = fold.turns[0][0], fold.turns[-1][-1]
    often = len(fold.turns)
    where = (
        f"layer {first.layer}"
        if first.layer == last.layer
        else f"layers {first.layer} to {last.layer}"
    )
    pen.text(_LEFT - 14, top + 22, f"× {often}, {where}" if often > 1 else where)
    inside = first.module if first is last else f"{first.module} … {_tail(first, last)}"
    pen.text(_LEFT - 14, top + 38, _short(inside, 40), "path")
    pen.y = top + 62
    for at, block in enumerate(pattern):
        copies = [turn[at] for turn in fold.turns]
        if len(pattern) > 1:
            pen.text(_LEFT - 14, pen.y - 2, _in_turn(copies), "fine")
            pen.y += 22
        _draw_block(pen, block, copies)
    pen.frame(top, pen.y)
    pen.y += 12


def _draw_block(pen: _AnatomyPen, block: BlockFacts, copies: Sequence[BlockFacts]) -> None:
    if block.opening:
        pen.box(_STREAM - 26, pen.y, 52, "norm")
        pen.y += 32
    batches: list[list[tuple[int, WriteFacts]]] = []
    for at, write in enumerate(block.writes):
        if write.parallel and batches:
            batches[-1].append((at, write))
        else:
            batches.append([(at, write)])
    for batch in batches:
        tap = pen.y
        back = tap + _LOOP * len(batch)
        pen.across(tap, half=3.5, kind="tip")
        for row, (at, write) in enumerate(batch):
            y = tap + _LOOP * row
            fork = _STREAM + pen.spread + 14
            start = f"M{_STREAM} {y:g}" if row == 0 else f"M{fork:g} {tap:g}V{y:g}"
            pen.wire(f"{start}H{_RIGHT}V{back:g}")
            _draw_branch(pen, y, write)
            same = [copy.writes[at] for copy in copies]
            path = write.module.removeprefix(f"{block.module}.")
            note = "reads the other stack" if write.role == "cross-attention" else ""
            note = _gain([one.gain for one in same]) or note
            pen.text(_LEFT, y + 29, _short(path, 34 - len(note)), "path")
            pen.text(_RIGHT - 8, y + 29, note, "fine", anchor="end")
        pen.wire(f"M{_RIGHT} {back:g}H{_STREAM}")
        keep = _span([copy.writes[batch[-1][0]].keep for copy in copies])
        if keep:
            pen.text(_STREAM - pen.spread - 7, tap + 28, f"× {keep}", "fine", anchor="end")
        pen.plus(back)
        pen.y = back + 30
        if any(write.settle or write.placement == "post" for _, write in batch):
            pen.box(_STREAM - 26, pen.y, 52, "norm")
            pen.y += 34


def _draw_branch(pen: _AnatomyPen, y: float, write: WriteFacts) -> None:
    before = write.placement in ("pre", "sandwich", "pre-and-post")
    after = write.placement in ("output", "sandwich")
    colour = pen.colours.get(write.role) or pen.colours.get("branch", "currentColor")
    if before:
        pen.box(_LEFT - 12, y, 48, "norm")
    pen.box(_LEFT + 44, y, 128, write.role, colour=colour)
    if after:
        pen.box(_LEFT + 180, y, 48, "norm")


def _spoken(blocks: Sequence[BlockFacts], folds: Sequence[Fold]) -> str:
    parts: list[str] = []
    for fold in folds:
        first, last = fold.turns[0][0], fold.turns[-1][-1]
        roles = "; then ".join(
            (" and " if block.parallel else ", ").join(write.role for write in block.writes)
            + f" ({block.placement} norm)"
            for block in fold.turns[0]
        )
        parts.append(f"layers {first.layer} to {last.layer}: {roles}")
    return f"{len(blocks)} layers on one stream. " + ". ".join(parts)


def _in_turn(copies: Sequence[BlockFacts]) -> str:
    numbers = [str(copy.layer) for copy in copies]
    shown = ", ".join(numbers[:4]) + (", …" if len(numbers) > 4 else "")
    return f"layer{'s' if len(numbers) > 1 else ''} {shown}"


def _gain(values: Sequence[float | str | None]) -> str:
    """The factor of an update in words, empty where it is one everywhere."""
    for value in values:
        if isinstance(value, str):
            return f"× {_short(value.rpartition('.')[2], 14)} (learned)"
    span = _span([value for value in values if not isinstance(value, str)])
    return f"× {span}" if span else ""


def _span(values: Sequence[float | None]) -> str:
    """A factor in words, empty where it is one everywhere."""
    known = [value for value in values if value is not None]
    if not known or all(abs(value - 1) < 1e-6 for value in known):
        return ""
    low, high = f"{min(known):.3g}", f"{max(known):.3g}"
    return low if low == high else f"{low}–{high}"


def _tail(first: BlockFacts, last: BlockFacts) -> str:
    """The part of the last module path in which it differs from the first."""
    shared = 0
    for mine, other in zip(first.module.split("."), last.module.split("."), strict=False):
        if mine != other:
            break
        shared += 1
    return ".".join(last.module.split(".")[shared:])


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else f"…{text[-(width - 1) :]}"
