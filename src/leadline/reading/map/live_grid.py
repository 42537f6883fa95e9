"""A sweep while it runs: a table that fills place by place, or one line per cell that has ended.

Rows are all labels but the depth, columns the depths. A place shows how many of its seeds have
ended, their mean loss, green where at least as many seeds train as the map asks for and red where
not, and how far the running ones are. Without an axis called depth the last axis makes the columns.

A terminal that is too small shows the rows and columns in which cells began last, and says how many
are left out. The names of the rows and the last line, which counts the cells, are always shown.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from leadline.reading.map.cells import HOLES, Label
from leadline.reading.map.trainability import SHARE
from leadline.record.words.numbers import format_clock

__all__ = ["GridCell", "LiveGrid", "clock"]

_GAP = 2
"""Spaces between two columns."""
_AROUND = 4
"""Lines beside the rows: heading, what is left out, count, and an empty one for the cursor."""
_NAME = 8
"""The least width of the names of the rows; below it the columns give way."""


@dataclass(frozen=True, slots=True)
class GridCell:
    """A cell as the table needs it: `floor` is the loss from which on downwards it trains."""

    run: str
    labels: Mapping[str, Label]
    floor: float


@dataclass(slots=True)
class _State:
    """How far a cell is: waiting, running, or how it ended."""

    status: str = "waiting"
    loss: float = math.nan
    step: int = 0
    steps: int = 0


class LiveGrid:
    """Shows the cells of a sweep as a table; Rich prints its state at that moment."""

    def __init__(
        self,
        cells: Sequence[GridCell],
        *,
        workers: int | None = None,
        started: float | None = None,
    ) -> None:
        self.cells = {cell.run: cell for cell in cells}
        self._states = {cell.run: _State() for cell in cells}
        names = list(cells[0].labels)
        self._across = "depth" if "depth" in names else names[-1]
        self._down = [name for name in names if name != self._across]
        self._places: dict[tuple[tuple[Label, ...], Label], list[str]] = {}
        for cell in cells:
            row = tuple(cell.labels[name] for name in self._down)
            self._places.setdefault((row, cell.labels[self._across]), []).append(cell.run)
        self._rows = list(dict.fromkeys(row for row, _ in self._places))
        self._columns = list(dict.fromkeys(column for _, column in self._places))
        if all(isinstance(column, int | float) for column in self._columns):
            self._columns.sort()
        self._workers = workers
        self._started = time.monotonic() if started is None else started
        self._start_order: dict[str, int] = {}

    def running(self, run: str, *, step: int = 0, steps: int = 0, loss: float = math.nan) -> None:
        """Note that a cell has begun, or has reached a step."""
        self._start_order.setdefault(run, len(self._start_order) + 1)
        self._states[run] = _State("running", loss, step, steps)

    def ended(self, run: str, *, status: str, loss: float | None) -> None:
        """Note that a cell has ended."""
        self._states[run] = _State(status, math.nan if loss is None else loss)

    @property
    def count(self) -> int:
        """How many cells have ended."""
        return sum(not self._open(state) for state in self._states.values())

    def line(self, run: str, *, seconds: float) -> str:
        """Say how a cell ended, in one line: `3 of 18  depth=12, seed=0: 2.613, trains, 14 s`."""
        state = self._states[run]
        words = [state.status]
        if not math.isnan(state.loss):
            verdict = "trains" if self._trains(run) else "does not train"
            words = [f"{state.loss:.3f}", verdict]
            if state.status != "finished":
                words.insert(0, state.status)
        if seconds:
            words.append(f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s")
        return f"{self.count} of {len(self.cells)}  {run}: {', '.join(words)}"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the table, and below it the line that counts."""
        texts = {place: self._place(runs) for place, runs in self._places.items()}
        names = {row: ", ".join(map(str, row)) for row in self._rows}
        title = ", ".join(self._down)
        widths = [self._width(column, texts) for column in self._columns]
        name = max(map(len, (title, *names.values())))
        name = max(min(name, options.max_width - max(widths)), min(name, _NAME))
        latest_start = {
            place: max(self._start_order.get(run, 0) for run in runs)
            for place, runs in self._places.items()
        }
        columns = _fitting(
            widths,
            [max(latest_start.get((r, column), 0) for r in self._rows) for column in self._columns],
            options.max_width - name,
        )
        rows = _fitting(
            [1] * len(self._rows),
            [max(latest_start.get((row, c), 0) for c in self._columns) for row in self._rows],
            options.max_height - _AROUND,
        )
        table = Table(box=None, padding=0, pad_edge=False, header_style="dim")
        table.add_column(title, style="bold", no_wrap=True, width=name, overflow="ellipsis")
        for n in columns:
            head = self._head(self._columns[n])
            table.add_column(head, justify="right", no_wrap=True, width=widths[n])
        for row in (self._rows[n] for n in rows):
            places = ((row, self._columns[n]) for n in columns)
            table.add_row(Text(names[row]), *(texts.get(place, Text("")) for place in places))
        yield table
        if left_out := self._left_out(len(rows), len(columns)):
            yield _line(left_out)
        yield _line(self._count_line(options.max_width))

    def _head(self, column: Label) -> str:
        return f"{self._across} {column}"

    def _width(self, column: Label, texts: Mapping[Any, Text]) -> int:
        places = [len(texts[row, column]) for row in self._rows if (row, column) in texts]
        return _GAP + max([len(self._head(column)), *places])

    def _left_out(self, rows: int, columns: int) -> str:
        counts = {"row": len(self._rows) - rows, "column": len(self._columns) - columns}
        words = [_several(count, what) for what, count in counts.items() if count]
        return f"{' and '.join(words)} more than the terminal has room for" if words else ""

    def _count_line(self, width: int) -> str:
        """Count the cells that have ended and that run, in fewer words where the line is too long."""
        total, left = len(self.cells), len(self.cells) - self.count
        running = sum(state.status == "running" for state in self._states.values())
        doing = f"{running} running"
        if left and not self._start_order:
            count = min(self._workers or 0, left)
            doing = f"starting {_several(count, 'worker') if count else 'workers'}"
        progress = f"{doing}, {clock(self._started)}"
        full = f"{self.count} of {total} cells have ended, {progress}"
        return full if len(full) <= width else f"{self.count}/{total}, {progress}"

    def _place(self, runs: Sequence[str]) -> Text:
        """One place: `2/3 2.61 45%`."""
        if not runs:
            return Text("")
        states = {run: self._states[run] for run in runs}
        ended = [run for run, state in states.items() if not self._open(state)]
        text = Text(f"{len(ended)}/{len(runs)}", style="dim")
        losses = [states[run].loss for run in ended if not math.isnan(states[run].loss)]
        measured = [run for run in ended if states[run].status not in HOLES]
        if measured:
            share = sum(map(self._trains, measured)) / len(measured)
            loss = f"{sum(losses) / len(losses):.2f}" if losses else "diverged"
            text.append(f" {loss}", style="not dim green" if share >= SHARE else "not dim red")
        elif ended:
            text.append(f" {states[ended[0]].status}", style="yellow")
        shares = [
            state.step / state.steps if state.steps else 0.0
            for state in states.values()
            if state.status == "running"
        ]
        if shares:
            text.append(f" {sum(shares) / len(shares):.0%}", style="cyan")
        return text

    def _trains(self, run: str) -> bool:
        return self._states[run].loss <= self.cells[run].floor

    @staticmethod
    def _open(state: _State) -> bool:
        return state.status in ("waiting", "running")


def clock(started: float) -> str:
    """Minutes and seconds since a moment of `time.monotonic`: `2:05`."""
    return format_clock(time.monotonic() - started)


def _fitting(sizes: Sequence[int], latest_start: Sequence[int], room: int) -> list[int]:
    """Return which lines fit, in their order; those in which a cell began last have priority."""
    kept: list[int] = []
    for n in sorted(range(len(sizes)), key=lambda n: (-latest_start[n], n)):
        if kept and sizes[n] > room:
            break
        room -= sizes[n]
        kept.append(n)
    return sorted(kept)


def _several(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _line(text: str) -> Text:
    return Text(text, style="dim", no_wrap=True, overflow="ellipsis")
