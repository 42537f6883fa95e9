"""Measure claims: what is in the ledger already is not measured again.

A job is a trial or a claim with one seed. Jobs run in processes of one thread each, the longest
first; a claim waits for its trials. Only this process writes the ledger, as results come in, so
that whoever is interrupted or killed goes on where it was.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leadline.catalog import load_plugin
from leadline.claims.catalog import CLAIMS, trials
from leadline.claims.digest import code_digest, trial_digest
from leadline.claims.ledger import Ledger, LedgerLine
from leadline.errors import InputError, LabError, LeadlineError, Progress, no_progress
from leadline.record.file.lock import only_writer

__all__ = ["ClaimJob", "Done", "jobs_of", "run_claims"]


@dataclass(frozen=True)
class ClaimJob:
    """A trial or a claim with one seed."""

    kind: str
    name: str
    seed: int
    code: str
    seconds: float
    waits: tuple[tuple[str, str, int], ...] = ()

    @property
    def key(self) -> tuple[str, str, int]:
        """What is measured with which seed."""
        return self.kind, self.name, self.seed


@dataclass
class Done:
    """What a run has done."""

    measured: int = 0
    kept: int = 0
    """Measurements that the ledger held already."""
    failed: dict[str, str] = field(default_factory=dict[str, str])
    """Claims and trials that could not be measured, and why."""


def jobs_of(names: Sequence[str], seeds: Sequence[int]) -> list[ClaimJob]:
    """Every job that the claims need, trials among them."""
    found: dict[tuple[str, str, int], ClaimJob] = {}
    known = trials(list(names))
    for name in names:
        entry = CLAIMS.get(name)
        if entry.measure is None:
            continue
        for seed in seeds if entry.seeded else (0,):
            needed: list[tuple[str, str, int]] = []
            for trial in entry.needs:
                code = trial_digest(known[trial.name])
                job = ClaimJob("trial", trial.name, seed, code, trial.seconds)
                found[job.key] = job
                needed.append(job.key)
            job = ClaimJob("claim", name, seed, code_digest(entry), entry.seconds, tuple(needed))
            found[job.key] = job
    return list(found.values())


def run_claims(
    names: Sequence[str],
    seeds: Sequence[int],
    path: Path,
    *,
    workers: int | None = None,
    plugins: Sequence[Path] = (),
    progress: Progress = no_progress,
) -> Done:
    """Measure what the ledger at `path` does not hold yet; return what was done."""
    if not seeds or min(seeds) < 0:
        raise InputError(f"Seeds are whole numbers from 0 on, at least one; got {list(seeds)}.")
    count = workers if workers is not None else os.cpu_count() or 1
    if count < 1:
        raise InputError(f"{count} processes cannot measure anything; ask for one or more.")
    with only_writer(path):
        ledger, done = Ledger(path), Done()
        jobs = jobs_of(names, seeds)
        ready: set[tuple[str, str, int]] = set()
        todo: dict[tuple[str, str, int], ClaimJob] = {}
        for job in jobs:
            if ledger.get(*job.key, code=job.code) is not None:
                ready.add(job.key)
            else:
                todo[job.key] = job
        _drop_idle_trials(todo)
        done.kept = len([job for job in jobs if job.kind == "claim" and job.key in ready])
        if todo:
            _measure(todo, ready, ledger, done, _Crew(count, tuple(plugins)), progress)
    return done


@dataclass(frozen=True)
class _Crew:
    count: int
    plugins: tuple[Path, ...]


def _drop_idle_trials(todo: dict[tuple[str, str, int], ClaimJob]) -> None:
    """A trial that only claims in the ledger have asked for need not run."""
    needed = {key for job in todo.values() for key in job.waits}
    for key in [key for key, job in todo.items() if job.kind == "trial" and key not in needed]:
        del todo[key]


def _measure(
    todo: dict[tuple[str, str, int], ClaimJob],
    ready: set[tuple[str, str, int]],
    ledger: Ledger,
    done: Done,
    crew: _Crew,
    progress: Progress,
) -> None:
    total, running = len(todo), dict[Future[LedgerLine], ClaimJob]()
    begun = list(todo.values())
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        min(crew.count, total), context, initializer=_begin, initargs=(os.getpid(), crew.plugins)
    )
    try:
        while todo or running:
            for job in sorted(todo.values(), key=lambda job: -job.seconds):
                if len(running) < crew.count and set(job.waits) <= ready:
                    del todo[job.key]
                    found = {name: _result(ledger, name, seed) for _, name, seed in job.waits}
                    running[pool.submit(_work, job, found)] = job
            if not running:
                break  # what is left waits for trials that failed
            told = next(iter(running.values()))
            progress(f"{told.name}, seed {told.seed}", total - len(todo) - len(running), total)
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                job = running.pop(future)
                _take(job, future, ledger, done)
                if job.name not in done.failed:
                    ready.add(job.key)
        progress("done", total, total)
        pool.shutdown()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        workers = multiprocessing.active_children()
        for worker in workers:
            worker.kill()
        for worker in workers:  # whoever called may count on them to be gone
            worker.join()
        raise
    for job in begun:
        if job.key in todo and job.name not in done.failed:
            trial = next(name for _, name, _ in job.waits if name in done.failed)
            done.failed[job.name] = f"it waits for the trial {trial!r}, which failed"


def _take(job: ClaimJob, future: Future[LedgerLine], ledger: Ledger, done: Done) -> None:
    try:
        line = future.result()
    except BrokenProcessPool as error:
        raise LabError(
            f"A process that measured {job.name!r} was killed, perhaps for want of memory. What "
            "was measured is in the ledger; run the same command again to go on, with --workers 1 "
            "for less memory."
        ) from error
    except LeadlineError as error:
        done.failed[job.name] = str(error)
    except Exception as error:  # one bad measurement must not lose the others
        done.failed[job.name] = f"{type(error).__name__}: {error}"
    else:
        ledger.add(line)
        done.measured += job.kind == "claim"


def _result(ledger: Ledger, name: str, seed: int) -> Mapping[str, Any]:
    """What a trial found; the ledger holds it, because the claim that asks for it was ready."""
    (line,) = [line for line in ledger if line.key == ("trial", name, seed)]
    assert line.result is not None
    return line.result


def _begin(parent: int, plugins: tuple[Path, ...]) -> None:
    """Prepare a process: one thread, no part in Ctrl-C, and no life after its parent."""
    from leadline.lab.engines.worker import end_with

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with(parent)
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)
    for file in plugins:
        load_plugin(file)


def _work(job: ClaimJob, found: Mapping[str, Mapping[str, Any]]) -> LedgerLine:
    """Run one job, in a process of the pool."""
    from leadline.instruments.passes.provenance import versions

    start = time.perf_counter()
    numbers: Mapping[str, float] = {}
    picture: Mapping[str, Any] | None = None
    result: Mapping[str, Any] | None = None
    if job.kind == "claim":
        entry = CLAIMS.get(job.name)
        measured = entry.run(job.seed, found)
        numbers = {name: float(value) for name, value in measured.numbers.items()}
        picture = measured.picture.to_json() if measured.picture else None
    else:
        result = trials(CLAIMS.names())[job.name].run(job.seed)
    return LedgerLine(
        kind=job.kind,
        name=job.name,
        seed=job.seed,
        code=job.code,
        seconds=time.perf_counter() - start,
        numbers=numbers,
        picture=picture,
        result=result,
        time=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        versions=versions(),
    )
