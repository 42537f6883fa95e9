"""scan(sources, path) -> Record: every checkpoint measured and diagnosed, all rows in one record.

The coordinator alone writes the record. A scan that was stopped goes on when it is asked for again
on the same path: checkpoints with an entry are not measured again, unless their files have changed
since. Checkpoints that were there and are gone keep their rows; those that have none, because they
could never be measured, leave the record, such as a name with a slip of the pen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from leadline.catalog import Choice, load_plugin
from leadline.errors import check_path
from leadline.lab.engines import ENGINES, Engine, Job, News, Orders
from leadline.lab.engines.local import workers_for
from leadline.lab.scan.examination import CheckpointWork
from leadline.lab.scan.files import fingerprint, free_memory, memory_needed
from leadline.lab.scan.scan_record import (
    add_checkpoint,
    drop_checkpoints,
    entries_of,
    entry_for,
    note_end,
    open_scan,
)
from leadline.lab.scan.settings import ScanSettings
from leadline.lab.scan.sources import CheckpointSource, find_checkpoints
from leadline.lab.sweep import check_numbers
from leadline.lab.work_folder import cell_folder, working_folder
from leadline.record import Record

__all__ = ["ScanBegun", "ScanEnded", "scan", "workers_that_fit"]


@dataclass(frozen=True)
class ScanBegun:
    """What a scan is about to do, by the names of checkpoints."""

    checkpoints: tuple[str, ...]
    waiting: tuple[str, ...]
    changed: tuple[str, ...]
    """Those that are measured again because their files are not what they were."""
    gone: tuple[str, ...]
    """Those in the record that the sources do not name any more."""
    dropped: tuple[str, ...]
    """Those among these that were never measured, so that nothing of them is kept."""
    workers: int | None
    wanted: int | None
    """So many workers were asked for; more than `workers` where memory is short."""


@dataclass(frozen=True)
class ScanEnded:
    """A checkpoint has its entry in the record."""

    name: str
    entry: Mapping[str, Any]


ScanListener = Callable[[ScanBegun | News | ScanEnded], None]


def scan(
    sources: str | Path | Sequence[str | Path],
    path: str | Path,
    *,
    settings: ScanSettings | None = None,
    engine: str | Choice = "local",
    workers: int | None = None,
    threads: int = 1,
    retry: bool = False,
    plugins: Sequence[str | Path] = (),
    progress: ScanListener | None = None,
) -> Record:
    """Measure and diagnose many checkpoints into one record; return it, for reading.

    `sources` are folders with checkpoints, models, patterns, or text files with a source per line.
    `settings` are the same for all of them. `workers` are as many as there are cores if none are
    named, and fewer where their models would not fit into memory together. `retry` tries those
    once more that could not be measured. `record.scan` is the result: the checkpoints, which are
    unhealthy, and what changes over them.
    """
    chosen = settings or ScanSettings()
    chosen.check()
    for file in plugins:
        load_plugin(file)
    check_numbers(workers=workers, threads=threads, budget=None, every=1.0)
    place = check_path(path)
    checkpoints = find_checkpoints([sources] if isinstance(sources, str | Path) else list(sources))
    choice = Choice.parse(engine) if isinstance(engine, str) else engine
    runner: Engine = ENGINES.build(choice)
    wanted = workers_for(workers, threads) if choice.name == "local" else workers
    say = progress or (lambda _: None)
    with working_folder(place, what="scan") as folder:
        orders = Orders(
            workers=wanted,
            threads=threads,
            plugins=tuple(str(Path(file).resolve()) for file in plugins),
        )
        with runner.ready(orders), open_scan(place, chosen) as record:
            begun, works = _plan(record, checkpoints, chosen, retry=retry)
            if choice.name == "local" and wanted is not None:
                fitting = workers_that_fit(works, wanted)
                begun = replace(begun, workers=fitting, wanted=wanted)
                orders = replace(orders, workers=fitting)
            drop_checkpoints(record, begun.dropped)
            say(begun)
            jobs = [Job(work, cell_folder(folder, work.run)) for work in works]
            with closing(runner.run(jobs, orders)) as messages:
                for news in messages:
                    if isinstance(news, News):
                        say(news)
                        continue
                    entry = add_checkpoint(record, news)
                    say(ScanEnded(entry["name"], entry))
            note_end(record, chosen)
    return Record.open(place)


def workers_that_fit(works: Sequence[CheckpointWork], wanted: int) -> int:
    """Return how many workers can run at once, where the largest models meet; at least one."""
    free = free_memory()
    if free is None or not works or works[0].settings.device != "cpu":
        return wanted
    needs = sorted(
        (memory_needed(work.checkpoint, dtype=work.settings.dtype) or 0 for work in works),
        reverse=True,
    )
    count = 1
    while count < wanted and sum(needs[: count + 1]) <= free:
        count += 1
    return count


def _plan(
    record: Record,
    checkpoints: Sequence[CheckpointSource],
    settings: ScanSettings,
    *,
    retry: bool,
) -> tuple[ScanBegun, list[CheckpointWork]]:
    """Say which checkpoints are measured, and under which names."""
    entries = entries_of(record)
    runs = {*record.runs, *(entry["run"] for entry in entries.values())}
    names: list[str] = []
    changed: list[str] = []
    works: list[CheckpointWork] = []
    for one in checkpoints:
        mark = fingerprint(one)
        name = entry_for(one, mark, entries)
        if name is None:
            name = _free_name(one.name, {*entries, *names})
        names.append(name)
        entry = entries.get(name)
        if entry is not None:
            is_changed = entry["fingerprint"] != mark
            if not is_changed and not (retry and entry["status"] != "measured"):
                continue
            if is_changed:
                changed.append(name)
        # A name that has rows keeps them; an entry without rows leaves its name free.
        taken = runs if entry is None or entry["status"] == "measured" else runs - {entry["run"]}
        run = _free_name(name, taken)
        runs.add(run)
        works.append(CheckpointWork(run, replace(one, name=name), mark, settings))
    waiting = tuple(work.checkpoint.name for work in works)
    absent = [name for name in entries if name not in names]
    gone = tuple(name for name in absent if entries[name]["status"] == "measured")
    dropped = tuple(name for name in absent if name not in gone)
    return ScanBegun(tuple(names), waiting, tuple(changed), gone, dropped, None, None), works


def _free_name(name: str, taken: set[str]) -> str:
    """The name itself, or with a number behind it where it is taken."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name} ({number})"
    return free
