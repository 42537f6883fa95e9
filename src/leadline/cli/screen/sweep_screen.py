"""What `leadline sweep` shows: the grid while it fills, the map at the end, the costs before."""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline.cli.screen.voice import Gauge, Voice
from leadline.errors import LeadlineError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from leadline.lab.estimate import CellCost
    from leadline.lab.sweep import Begun
    from leadline.reading.map.live_grid import LiveGrid
    from leadline.record import Record

__all__ = ["deliver", "show_costs", "watching"]

PER_SECOND = 4
"""So often the grid is drawn."""


@contextmanager
def watching(voice: Voice, workers: int | None) -> Iterator[Callable[[Any], None] | None]:
    """Show the grid that fills on a terminal, lines elsewhere, nothing with --quiet.

    `workers` are about to start; None where nobody knows how many.
    """
    if voice.quiet:
        yield None
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(file=sys.stderr, highlight=False)
    if not console.is_terminal:
        with voice.progress("Preparing the sweep") as gauge:
            yield _Screen(voice, workers, gauge=gauge)
        return
    screen = _Screen(voice, workers, live=True)
    # It draws itself again and again, so that the clock moves while nobody says anything.
    with Live(
        console=console,
        transient=True,
        refresh_per_second=PER_SECOND,
        get_renderable=lambda: screen.shown,
    ):
        yield screen


class _Screen:
    """Carries what a sweep says to the grid."""

    def __init__(
        self,
        voice: Voice,
        workers: int | None = None,
        *,
        live: bool = False,
        gauge: Gauge | None = None,
    ) -> None:
        self.voice = voice
        self.gauge = gauge
        self.workers = workers
        self.live = live
        self.grid: LiveGrid | None = None
        self.started = time.monotonic()

    @property
    def shown(self) -> RenderableType:
        """What stands on the terminal now."""
        from leadline.reading.map.live_grid import clock

        return self.grid or f"Preparing the sweep, {clock(self.started)}"

    def __call__(self, event: Any) -> None:
        from leadline.lab.engines import News
        from leadline.lab.sweep import Begun

        if isinstance(event, Begun):
            self.grid = self._begin(event)
        grid = self.grid
        assert grid is not None  # a sweep says first what it begins
        if isinstance(event, News):
            beat = event.beat
            if beat is None:
                grid.running(event.run)
            else:
                grid.running(event.run, step=beat.step, steps=beat.steps, loss=beat.loss)
                if self.gauge is not None:
                    doing = f"{event.run}: step {beat.step}/{beat.steps}, loss {beat.loss:.3f}"
                    self.gauge(doing, grid.count, len(grid.cells))
        elif not isinstance(event, Begun):
            facts = event.facts
            grid.ended(event.run, status=facts["status"], loss=facts["loss"])
            if not self.live:
                self.voice.note(grid.line(event.run, seconds=facts["seconds"]))

    def _begin(self, event: Begun) -> LiveGrid:
        from leadline.reading.map.live_grid import GridCell, LiveGrid
        from leadline.reading.map.trainability import MARGIN

        floors = {task: facts["unigram"] - MARGIN for task, facts in event.tasks.items()}
        default = next(iter(floors.values()))
        grid = LiveGrid(
            [
                GridCell(cell.run, cell.labels, floors.get(_task(cell.fields), default))
                for cell in event.cells
            ],
            workers=self.workers,
            started=self.started,
        )
        for run, facts in event.ended.items():
            grid.ended(run, status=facts["status"], loss=facts["loss"])
        if event.ended and not self.live:
            self.voice.note(f"{grid.count} of {len(event.cells)} cells have ended before.")
        return grid


def _task(fields: Any) -> str:
    return str(fields.get("task", "stdlib"))


def deliver(voice: Voice, record: Record, path: Path, *, everything: bool = False) -> None:
    """The map where there is one, how many cells ended how, and what to run next."""
    from leadline.reading.map.trainability import trainability
    from leadline.record.provenance import strict_json

    known = record.provenance
    cells = {
        key.removeprefix("cell:"): value for key, value in known.items() if key.startswith("cell:")
    }
    try:
        found = trainability(record)
    except LeadlineError as error:  # such as a sweep without a depth
        found = None
        voice.note(str(error))
    stopped = known["sweep"]["stopped"]
    voice.emit(
        lambda: strict_json(
            {
                "record": str(path),
                "stopped": stopped,
                "cells": cells,
                "map": None if found is None else found.to_json(),
            }
        )
    )
    if found is not None:
        voice.show(found.screen(everything=everything).show)
        voice.say("")
    kinds = Counter(facts["status"] for facts in cells.values())
    voice.say(
        f"{len(cells)} of {known['sweep']['cells']} cells have ended: "
        f"{', '.join(f'{count} {status}' for status, count in kinds.most_common())}."
    )
    if stopped:
        voice.say(f"It stopped: {stopped}. The same command goes on.")
    if kinds["failed"]:
        voice.say("The same command with --retry tries the failed cells once more.")
    voice.say(f"The record is in {path}; `leadline map {path}` draws it again.")


def show_costs(voice: Voice, costs: list[CellCost], *, workers: int | None, threads: int) -> None:
    """Print what a sweep would cost: parameters and time of every cell, and the whole."""
    from leadline.lab.engines.local import workers_for
    from leadline.lab.estimate import makespan
    from leadline.record.provenance import strict_json
    from leadline.record.words.numbers import format_count
    from leadline.record.words.table import Row, TableColumn, TextTable

    def counted(flops: float) -> str:
        return format_count(flops) if math.isfinite(flops) else "?"

    columns = (
        TableColumn("cell"),
        TableColumn("steps", right=True),
        TableColumn("FLOPs", right=True),
        TableColumn("about", wraps=True),
    )
    rows = tuple(
        Row((cost.run, "", "", f"impossible: {cost.reason}"))
        if cost.reason
        else Row((cost.run, str(cost.steps), counted(cost.flops), _time(cost.seconds)))
        for cost in costs
    )
    possible = [cost for cost in costs if not cost.reason]
    count = workers_for(workers, threads)
    known = [cost for cost in possible if math.isfinite(cost.seconds)]
    voice.emit(lambda: strict_json({"cells": [vars(cost) for cost in costs], "workers": count}))
    voice.show(TextTable(columns, rows).show)
    if not possible:
        voice.say("No cell can be built.")
        return
    flops = counted(sum(cost.flops for cost in known)) if known else "?"
    flops += "" if flops[-1].isalpha() else " "  # 1.2 GFLOPs, but 600 FLOPs
    seconds = makespan([cost.seconds for cost in known], count) if known else math.nan
    busy = min(count, len(possible))
    more = len(possible) - len(known)
    voice.say(
        f"{_several(len(possible), 'cell')}, {flops}FLOPs, about {_time(seconds)} with "
        f"{_several(busy, 'worker')} on this machine"
        f"{f', and {more} that cannot be counted' if more and known else ''}."
    )


def _several(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _time(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "?"
    for size, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
