"""What `leadline sweep` shows: the grid while it fills, the map at the end, the costs before."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline.cli._voice import Voice
from leadline.errors import LeadlineError

if TYPE_CHECKING:
    from leadline.lab.estimate import CellCost
    from leadline.lab.sweep import Begun
    from leadline.record import Record
    from leadline.reporting.live_grid import LiveGrid

__all__ = ["deliver", "show_costs", "watching"]


@contextmanager
def watching(voice: Voice) -> Iterator[Callable[[Any], None] | None]:
    """Show the grid that fills on a terminal, lines elsewhere, nothing with --quiet."""
    if voice.quiet:
        yield None
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(file=sys.stderr, highlight=False)
    if not console.is_terminal:
        yield _Screen(voice, None)
        return
    with Live(console=console, transient=True, auto_refresh=False) as live:
        yield _Screen(voice, live)


class _Screen:
    """Carries what a sweep says to the grid and shows it."""

    def __init__(self, voice: Voice, live: Any) -> None:
        self.voice = voice
        self.live = live
        self.grid: LiveGrid | None = None

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
        elif not isinstance(event, Begun):
            facts = event.facts
            grid.ended(event.run, status=facts["status"], loss=facts["loss"])
            if self.live is None:
                self.voice.note(grid.line(event.run, seconds=facts["seconds"]))
        if self.live is not None:
            self.live.update(grid, refresh=True)

    def _begin(self, event: Begun) -> LiveGrid:
        from leadline.analysis.trainability import MARGIN
        from leadline.reporting.live_grid import GridCell, LiveGrid

        floors = {task: facts["unigram"] - MARGIN for task, facts in event.tasks.items()}
        default = next(iter(floors.values()))
        grid = LiveGrid(
            [
                GridCell(cell.run, cell.labels, floors.get(_task(cell.fields), default))
                for cell in event.cells
            ]
        )
        for run, facts in event.ended.items():
            grid.ended(run, status=facts["status"], loss=facts["loss"])
        if event.ended and self.live is None:
            self.voice.note(f"{grid.count} of {len(event.cells)} cells have ended before.")
        return grid


def _task(fields: Any) -> str:
    return str(fields.get("task", "stdlib"))


def deliver(voice: Voice, record: Record, path: Path) -> None:
    """The map where there is one, how many cells ended how, and what to run next."""
    from leadline.analysis.trainability import trainability
    from leadline.record.provenance import strict_json
    from leadline.reporting.trainability_terminal import show_trainability

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
        voice.show(lambda console: show_trainability(found, console))
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
    from leadline.record.numbers import align, format_count
    from leadline.record.provenance import strict_json

    rows = [["cell", "steps", "FLOPs", "about"]]
    for cost in costs:
        if cost.reason:
            rows.append([cost.run, "", "", f"impossible: {cost.reason}"])
        else:
            rows.append([cost.run, str(cost.steps), format_count(cost.flops), _time(cost.seconds)])
    possible = [cost for cost in costs if not cost.reason]
    from leadline.lab.engines.local import usable_cores

    count = workers or max(1, usable_cores() // threads)
    total = sum(cost.seconds for cost in possible if math.isfinite(cost.seconds))
    flops = sum(cost.flops for cost in possible if math.isfinite(cost.flops))
    voice.emit(lambda: strict_json({"cells": [vars(cost) for cost in costs], "workers": count}))
    voice.say("\n".join(align(rows, right=(1, 2))))
    voice.say(
        f"{len(possible)} cells, {format_count(flops)}FLOPs, about {_time(total / count)} with "
        f"{count} worker{'s' if count > 1 else ''} on this machine."
    )


def _time(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "?"
    for size, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
