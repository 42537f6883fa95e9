"""sweep(what, path) -> Record: every cell of a sweep trained, all rows in one record.

The coordinator alone writes the record. A sweep that was stopped, by a budget, by Ctrl-C or by
kill -9, goes on when it is asked for again on the same path: cells that have ended are in the
record, the others go on from their checkpoints. The rows are those of an undisturbed sweep.

Cells begin seed by seed, so that a sweep that is stopped early has every place of the map once
before it has one twice, and within a seed in the order of depth times steps, the largest first,
so that all workers end at about the same time.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leadline.catalog import Choice, load_plugin
from leadline.errors import (
    CatalogError,
    LabError,
    LeadlineError,
    UnknownName,
    check_path,
    shown,
)
from leadline.lab.cell import Cell, CellResult, facts_without_run, prepare
from leadline.lab.engines import ENGINES, Engine, Job, News, Orders
from leadline.lab.grid import Sweep
from leadline.lab.recording import task_facts
from leadline.lab.sweep_record import add_cells, ended_cells, note_stop, open_record
from leadline.lab.tasks import build_task
from leadline.lab.work_folder import LOCK, cell_folder, remove_cell, working_folder
from leadline.record import Record

__all__ = ["Begun", "Ended", "check_cells", "check_numbers", "sweep"]


@dataclass(frozen=True)
class Begun:
    """What a sweep is about to do: its cells, and the facts of those that have ended before."""

    cells: tuple[Cell, ...]
    ended: Mapping[str, Mapping[str, Any]]
    tasks: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Ended:
    """A cell has ended and is in the record."""

    run: str
    facts: Mapping[str, Any]


SweepListener = Callable[[Begun | News | Ended], None]


def sweep(
    what: Sweep,
    path: str | Path,
    *,
    engine: str | Choice = "local",
    workers: int | None = None,
    threads: int = 1,
    budget: float | None = None,
    every: float = 10.0,
    retry: bool = False,
    plugins: Sequence[str | Path] = (),
    progress: SweepListener | None = None,
) -> Record:
    """Run the cells that have not ended yet; return the record, for reading.

    `workers` are as many as there are cores if none are named, with `threads` each. After
    `budget` seconds the sweep stops and says so in the record. `every` says how many seconds lie
    between two checkpoints of a cell. `retry` tries cells that failed once more. `plugins` are
    files that the workers run first.
    """
    if not isinstance(what, Sweep):
        raise LabError(
            f"A sweep is described by a leadline.Sweep, not by {shown(what)}; "
            "leadline.Sweep.over({'depth': [6, 12]}) makes one."
        )
    for file in plugins:
        load_plugin(file)
    check_numbers(workers=workers, threads=threads, budget=budget, every=every)
    place = check_path(path)
    runner: Engine = ENGINES.build(engine)
    started = time.monotonic()
    impossible, tasks = check_cells(what)
    orders = Orders(
        workers=workers,
        threads=threads,
        every=every,
        deadline=float("inf") if budget is None else started + budget,
        plugins=tuple(str(Path(file).resolve()) for file in plugins),
        texts={name: facts["digest"] for name, facts in tasks.items() if "digest" in facts},
    )
    with (
        working_folder(place) as folder,
        runner.ready(orders),  # first, so that no record is begun that no engine can fill
        open_record(place, what, tasks) as record,
    ):
        say = progress or (lambda _: None)
        ended_before = ended_cells(record)
        new_results = [result for run, result in impossible.items() if run not in ended_before]
        if new_results:
            add_cells(record, new_results)
        facts_by_run = {**ended_before, **{result.run: result.facts for result in new_results}}
        say(Begun(tuple(what.cells()), facts_by_run, tasks))
        again = {
            run for run, facts in ended_before.items() if retry and facts["status"] == "failed"
        }
        for run in set(facts_by_run) - again:
            remove_cell(folder, run)
        waiting = [
            cell for cell in what.cells() if cell.run not in facts_by_run or cell.run in again
        ]
        waiting.sort(key=lambda cell: _order(cell, what.seeds))
        jobs = [Job(cell, cell_folder(folder, cell.run)) for cell in waiting]
        remaining = _work(runner, jobs, orders, record=record, say=say)
        count = len(what.cells()) - len(remaining)
        if remaining:
            total = len(what.cells())
            note_stop(
                record,
                what,
                f"the budget of {budget:g} seconds was over with {count} of {total} cells ended",
            )
        else:
            note_stop(record, what, None)
            _clear(folder)
    return Record.open(place)


def check_cells(what: Sweep) -> tuple[dict[str, CellResult], dict[str, dict[str, Any]]]:
    """Return the cells that cannot be built, with the reason, and the facts of every task.

    A sweep without a cell that can be built is an error, and so is a name that nothing has.
    """
    impossible: dict[str, CellResult] = {}
    examples: dict[str, int] = {}
    for cell in what.cells():
        try:
            _, training, _ = prepare(cell)
        except (CatalogError, UnknownName) as error:  # a typing error, not a result
            raise LabError(f"The cell {cell.run!r} cannot be built: {error}") from error
        except LeadlineError as error:
            facts = facts_without_run(cell, "impossible", str(error))
            impossible[cell.run] = CellResult(cell.run, (), facts)
        else:
            spelling = str(training.task_choice)
            examples[spelling] = max(training.examples, examples.get(spelling, 0))
    if len(impossible) == len(what.cells()):
        first = next(iter(impossible.values()))
        raise LabError(
            f"No cell of the sweep {what.name!r} can be built. The first one, {first.run}: "
            f"{first.facts['reason']}"
        )
    return impossible, {
        spelling: task_facts(build_task(spelling), count) for spelling, count in examples.items()
    }


def _work(
    engine: Engine, jobs: list[Job], orders: Orders, *, record: Record, say: SweepListener
) -> list[str]:
    """Run the jobs and record what they give; return the runs that did not end."""
    remaining = {job.cell.run: job for job in jobs}
    with closing(engine.run(jobs, orders)) as messages:
        for news in messages:
            if isinstance(news, News):
                say(news)
                continue
            add_cells(record, [news])
            shutil.rmtree(remaining.pop(news.run).folder, ignore_errors=True)
            say(Ended(news.run, news.facts))
    return list(remaining)


def _clear(folder: Path) -> None:
    """Remove what cells have left behind, but not the lock."""
    for place in folder.iterdir():
        if place.name != LOCK:
            shutil.rmtree(place, ignore_errors=True)


def _order(cell: Cell, seeds: Sequence[int]) -> tuple[int, float]:
    """Return the sort key: seed by seed, the largest cell first."""
    return seeds.index(cell.seed), -cell.recipe().depth * cell.training().steps


def check_numbers(*, workers: object, threads: object, budget: object, every: object) -> None:
    """Refuse numbers of workers, threads and seconds that make no sense."""
    for name, value in (("workers", workers), ("threads", threads)):
        is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        if not (is_count or (name == "workers" and value is None)):
            raise LabError(f"{name} is a whole number from 1 on, not {value!r}.")
    for name, value in (("budget", budget), ("every", every)):
        is_duration = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        if not (is_duration or (name == "budget" and value is None)):
            raise LabError(f"{name} is a number of seconds above 0, not {value!r}.")
