"""A sweep while it runs: a table that fills place by place, or one line per cell that has ended.

Rows are all labels but the depth, columns the depths. A place shows how many of its seeds have
ended, their mean loss, green where at least as many seeds train as the map asks for and red where
not, and how far those that run are. Without an axis called depth the last axis makes the columns.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Group
from rich.table import Table
from rich.text import Text

from leadline.analysis.trainability import SHARE

__all__ = ["GridCell", "LiveGrid"]

Label = str | int | float

_HOLES = ("failed", "impossible")


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
    """See the module's first lines. Rich prints it as it stands at that moment."""

    def __init__(self, cells: Sequence[GridCell]) -> None:
        self.cells = {cell.run: cell for cell in cells}
        self._states = {cell.run: _State() for cell in cells}
        names = list(cells[0].labels)
        self._across = "depth" if "depth" in names else names[-1]
        self._down = [name for name in names if name != self._across]
        self._places: dict[tuple[tuple[Label, ...], Label], list[str]] = {}
        for cell in cells:
            row = tuple(cell.labels[name] for name in self._down)
            self._places.setdefault((row, cell.labels[self._across]), []).append(cell.run)
        self._started = time.monotonic()

    def running(self, run: str, *, step: int = 0, steps: int = 0, loss: float = math.nan) -> None:
        """A cell has begun, or is at a step."""
        self._states[run] = _State("running", loss, step, steps)

    def ended(self, run: str, *, status: str, loss: float | None) -> None:
        """A cell has ended."""
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

    def __rich__(self) -> Group:
        """The table as it stands."""
        columns = list(dict.fromkeys(column for _, column in self._places))
        rows = list(dict.fromkeys(row for row, _ in self._places))
        if all(isinstance(column, int | float) for column in columns):
            columns.sort()
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        table.add_column(", ".join(self._down), style="bold")
        for column in columns:
            table.add_column(f"{self._across} {column}", justify="right", no_wrap=True)
        for row in rows:
            table.add_row(
                Text(", ".join(map(str, row))),
                *(self._place(self._places.get((row, column), [])) for column in columns),
            )
        running = sum(state.status == "running" for state in self._states.values())
        minutes, seconds = divmod(int(time.monotonic() - self._started), 60)
        said = f"{self.count} of {len(self.cells)} cells have ended, {running} running"
        return Group(table, Text(f"{said}, {minutes}:{seconds:02d}", style="dim"))

    def _place(self, runs: Sequence[str]) -> Text:
        """One place: `2/3 2.61 45%`."""
        if not runs:
            return Text("")
        states = {run: self._states[run] for run in runs}
        done = [run for run, state in states.items() if not self._open(state)]
        text = Text(f"{len(done)}/{len(runs)}", style="dim")
        losses = [states[run].loss for run in done if not math.isnan(states[run].loss)]
        counted = [run for run in done if states[run].status not in _HOLES]
        if counted:
            share = sum(map(self._trains, counted)) / len(counted)
            shown = f"{sum(losses) / len(losses):.2f}" if losses else "diverged"
            text.append(f" {shown}", style="not dim green" if share >= SHARE else "not dim red")
        elif done:
            text.append(f" {states[done[0]].status}", style="yellow")
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
