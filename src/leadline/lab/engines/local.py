"""Cells in processes of this machine: one process per core, one thread each.

A worker is kept for many cells, because starting one means importing torch. Every worker has a
pipe of its own and nothing is shared, so a worker that is killed at any moment disturbs no other.
Its cell goes on from the checkpoint in a new worker.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import defaultdict, deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from typing import Any

from leadline.errors import LabError
from leadline.lab.cell import CellResult
from leadline.lab.engines import worker as w
from leadline.lab.engines.engine import ENGINES, Deaths, Engine, Job, News, Orders
from leadline.lab.work_folder import saved_step

__all__ = ["GRACE", "LocalEngine", "usable_cores", "workers_for"]

GRACE = 30.0
"""Seconds that a running cell has to write its checkpoint when time is up."""
_STILLBORN = 10
"""After so many workers in a row that were killed before they began, the sweep is given up."""
_LOOK = 0.5
"""The deadline is checked at least every so many seconds, even if no worker says anything."""


@ENGINES.register("local")
class LocalEngine(Engine):
    """Every cell runs in a process of this machine, one thread each; one that dies is replaced."""

    def run(self, jobs: Sequence[Job], orders: Orders) -> Generator[News | CellResult]:
        """Run the jobs, the first ones first."""
        limit = workers_for(orders.workers, orders.threads)
        pool = _Pool(orders)
        waiting = deque(jobs)
        deaths: defaultdict[str, Deaths] = defaultdict(Deaths)
        try:
            while True:
                if orders.over:
                    waiting.clear()
                    pool.pause()
                busy = [worker for worker in pool.workers if worker.job is not None]
                if not waiting and not busy:
                    return
                pool.grow(min(limit, len(waiting) + len(busy)))
                for worker in pool.idle():
                    if waiting:
                        job = waiting.popleft()
                        deaths[job.cell.run].begin(saved_step(job.folder))
                        pool.give(worker, job)
                for kind, what in pool.hear():
                    if kind == w.RESULT:
                        tries = deaths[what.run].total + 1
                        yield replace(what, facts={**what.facts, "attempts": tries})
                    elif kind == w.NEWS:
                        if what.beat is not None:
                            deaths[what.run].hear(what.beat.step)
                        yield what
                    elif kind == w.HALT:
                        raise LabError(what)
                for job, how in pool.bury():
                    cell_deaths = deaths[job.cell.run]
                    if cell_deaths.count(saved_step(job.folder)):
                        waiting.appendleft(job)
                    else:
                        # The system ends what takes too much memory by signal 9.
                        memory = how == "signal 9"
                        yield job.cell.lost(
                            cell_deaths, worker="the worker", how=how, memory=memory
                        )
        finally:
            pool.end()


def workers_for(workers: int | None, threads: int) -> int:
    """Return the number of workers: `workers`, or as many as have a core for every thread."""
    return workers or max(1, usable_cores() // max(1, threads))


def usable_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(eq=False)
class _Worker:
    """A process and the pipe to it; `job` is what it runs."""

    process: Any
    pipe: Any
    ready: bool = False
    dead: bool = False
    job: Job | None = None


class _Pool:
    """The worker processes."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.workers: list[_Worker] = []
        self._context = multiprocessing.get_context("spawn")
        self._stillborn = 0
        self._paused_at: float | None = None

    def grow(self, count: int) -> None:
        """Start workers until there are so many."""
        while len(self.workers) < count:
            ours, theirs = self._context.Pipe()
            process = self._context.Process(
                target=w.work, args=(theirs, self.orders, os.getpid()), daemon=True
            )
            try:
                with _surroundings(self.orders.threads):
                    process.start()
            except OSError as error:
                raise LabError(
                    f"No worker process can be started: {error.strerror}; ask for fewer workers."
                ) from error
            theirs.close()  # the worker's copy alone is open: its death ends the pipe
            self.workers.append(_Worker(process, ours))

    def idle(self) -> list[_Worker]:
        """The workers that wait for a job."""
        return [worker for worker in self.workers if worker.ready and worker.job is None]

    def give(self, worker: _Worker, job: Job) -> None:
        """Let a worker begin a job."""
        worker.job = job
        with suppress(OSError):  # it has died, and is buried with its job
            worker.pipe.send(job)

    def hear(self) -> Iterator[tuple[str, Any]]:
        """Yield the messages of the workers, after waiting a moment for them."""
        pipes = {worker.pipe: worker for worker in self.workers}
        ends = [worker.process.sentinel for worker in self.workers]
        wait([*pipes, *ends], timeout=_LOOK)
        for worker in self.workers:
            try:
                while worker.pipe.poll():
                    kind, what = worker.pipe.recv()
                    worker.ready = True
                    self._stillborn = 0
                    if kind in (w.RESULT, w.PAUSED):
                        worker.job = None
                    yield kind, what
            except (EOFError, OSError):
                worker.dead = True

    def bury(self) -> Iterator[tuple[Job, str]]:
        """Remove dead workers; yield the jobs that they ran, and how each worker died."""
        for worker in [one for one in self.workers if one.dead]:
            worker.process.join()
            worker.pipe.close()
            self.workers.remove(worker)
            code = worker.process.exitcode
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            if not worker.ready:
                self._stillborn += 1
                if code > 0 or self._stillborn >= _STILLBORN:
                    raise LabError(
                        f"The worker processes cannot start ({how}); in a script, call sweep() or "
                        "scan() below `if __name__ == '__main__':`."
                    )
            if worker.job is not None and self._paused_at is None:
                yield worker.job, how

    def pause(self) -> None:
        """Ask for checkpoints, once; end the workers that have written none after the grace period."""
        now = time.monotonic()
        if self._paused_at is None:
            self._paused_at = now
            for worker in self.workers:
                with suppress(OSError):
                    worker.pipe.send(w.PAUSE)
        elif now - self._paused_at > GRACE:
            for worker in self.workers:
                worker.process.kill()

    def end(self) -> None:
        """End all workers at once."""
        for worker in self.workers:
            worker.process.kill()
        for worker in self.workers:
            worker.process.join()
            worker.pipe.close()
        self.workers.clear()


@contextmanager
def _surroundings(threads: int) -> Iterator[None]:
    """Set what a worker inherits: its number of threads, and that it ignores Ctrl-C.

    Ctrl-C reaches every process of a terminal; the coordinator alone answers it. The variables
    must stand before the worker imports torch.
    """
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    resource_tracker.ensure_running()  # its start would let the signal through again
    masked = hasattr(signal, "pthread_sigmask")
    if masked:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        os.environ.update(dict.fromkeys(names, str(threads)))
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        if masked:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
