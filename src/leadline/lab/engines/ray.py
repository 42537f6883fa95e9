"""Cells as tasks of a Ray cluster: `ray(address="HOST:PORT")`, or `auto` for the one that runs here.

Without an address a Ray of this machine is started for the sweep and stopped after it. Every
machine of a cluster needs the same Leadline. Checkpoints are in the sweep's folder: where the
machines share it, a cell whose worker died goes on from its checkpoint, elsewhere it begins anew;
the rows are the same.

Newer versions of Ray ask for a token: the sweep must see the one of the cluster (RAY_AUTH_TOKEN,
or the file that RAY_AUTH_TOKEN_PATH names), or both must run with RAY_AUTH_MODE=disabled.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import time
from collections import defaultdict, deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline.catalog import load_plugin
from leadline.errors import LabError, require
from leadline.lab.cell import CellResult, Paused
from leadline.lab.engines.engine import ENGINES, Deaths, Engine, Job, News, Orders
from leadline.lab.work_folder import LOCK, saved_step

if TYPE_CHECKING:
    from leadline.lab.trainer import Beat

__all__ = ["RayEngine"]

SPEAK = 1.0
"""Seconds between two news of a cell, at least."""
_LOOK = 0.5
"""The deadline is checked at least every so many seconds."""
_GRACE = 60.0
"""Seconds that running cells have to write their checkpoints when time is up."""
_IN_FLIGHT = 256
"""So many tasks are handed to Ray at a time if the number of workers is not given."""


@ENGINES.register("ray")
class RayEngine(Engine):
    """Every cell is a task of a Ray cluster; one whose worker dies is run again."""

    def __init__(self, address: str | None = None) -> None:
        self.address = address

    def ready(self, orders: Orders) -> contextlib.AbstractContextManager[None]:
        """The connection to the cluster."""
        return _connected(require("ray", extra="ray"), self.address, orders)

    def run(self, jobs: Sequence[Job], orders: Orders) -> Generator[News | CellResult]:
        """Run the jobs, the first ones first."""
        ray = require("ray", extra="ray")
        with _connected(ray, self.address, orders):
            board = ray.remote(num_cpus=0)(_Board).remote()
            # Ray's own retries would never end where memory runs out.
            task = ray.remote(num_cpus=orders.threads, max_retries=0)(_run_on_ray)
            waiting = deque(jobs)
            running: dict[Any, Job] = {}
            deaths: defaultdict[str, Deaths] = defaultdict(Deaths)
            paused_at: float | None = None
            try:
                while waiting or running:
                    if orders.over:
                        waiting.clear()
                        if paused_at is None:
                            paused_at = time.monotonic()
                            ray.get(board.pause.remote())
                        elif time.monotonic() - paused_at > _GRACE:
                            return
                    while waiting and len(running) < (orders.workers or _IN_FLIGHT):
                        job = waiting.popleft()
                        deaths[job.cell.run].begin(saved_step(job.folder))
                        running[task.remote(job, orders, board, str(Path.cwd()))] = job
                    references, _ = ray.wait(list(running), timeout=_LOOK) if running else ([], [])
                    for news in ray.get(board.take.remote()):
                        if news.beat is not None:
                            deaths[news.run].hear(news.beat.step)
                        yield news
                    for reference in references:
                        job = running.pop(reference)
                        cell_deaths = deaths[job.cell.run]
                        answer = _answer(ray, reference)
                        if isinstance(answer, CellResult):
                            yield replace(
                                answer, facts={**answer.facts, "attempts": cell_deaths.total + 1}
                            )
                        elif isinstance(answer, _Died):
                            if cell_deaths.count(saved_step(job.folder)):
                                waiting.appendleft(job)
                            else:
                                yield job.cell.lost(
                                    cell_deaths,
                                    worker="the Ray worker",
                                    how=answer.how,
                                    memory=True,
                                )
            finally:
                for reference in running:
                    with contextlib.suppress(Exception):
                        ray.cancel(reference, force=True)


class _Board:
    """Where running cells leave their news, and learn that time is up."""

    def __init__(self) -> None:
        self.news: list[News] = []
        self.pausing = False

    def post(self, news: News) -> bool:
        self.news.append(news)
        return self.pausing

    def take(self) -> list[News]:
        news, self.news = self.news, []
        return news

    def pause(self) -> None:
        self.pausing = True


@dataclass(frozen=True)
class _Died:
    """The answer of a task whose worker died."""

    how: str


def _run_on_ray(job: Job, orders: Orders, board: Any, where: str) -> CellResult | None:
    """One cell, in a worker of Ray; None where it was paused."""
    ray = require("ray", extra="ray")
    for file in orders.plugins:
        load_plugin(file)
    last = 0.0

    def tell(beat: Beat) -> None:
        nonlocal last
        if time.monotonic() - last >= SPEAK:
            last = time.monotonic()
            if ray.get(board.post.remote(News(job.cell.run, beat, os.getpid()))):
                raise Paused

    if ray.get(board.post.remote(News(job.cell.run, None, os.getpid()))):
        return None
    shared = (job.folder.parent / LOCK).exists()  # the coordinator's lock: the folder is the same
    here = Path(where)
    with contextlib.chdir(here if here.is_dir() else Path.cwd()):
        try:
            return job.cell.perform(job.folder if shared else None, orders, tell)
        except Paused:
            return None


def _answer(ray: Any, reference: Any) -> CellResult | _Died | None:
    """Return what a task gave, or a death if its worker or its machine is gone."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, LabError):
            raise LabError(str(cause)) from None
        raise LabError(f"A task of Ray failed: {_last_line(error)}.") from None
    except ray.exceptions.OutOfMemoryError:
        return _Died("out of memory")
    except ray.exceptions.RayError as error:
        return _Died(type(error).__name__)


@contextlib.contextmanager
def _connected(ray: Any, address: str | None, orders: Orders) -> Iterator[None]:
    """A connection to the cluster, or a cluster of this machine for the time being."""
    if ray.is_initialized():
        yield
        return
    answers = _answers(address)
    options: dict[str, Any] = {}
    if address is None:
        options["include_dashboard"] = False
        if orders.workers:
            options["num_cpus"] = orders.workers * orders.threads
    try:
        with _silenced():
            ray.init(
                address="local" if address is None else address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                **options,
            )
    except Exception as error:
        raise LabError(_why_not(address, error, answers=answers)) from error
    try:
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Silence standard error, also for Ray's code in C++."""
    sys.stderr.flush()
    stderr, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(null)


def _answers(address: str | None) -> bool:
    """Whether the address answers. Ray itself would try for minutes where nothing does."""
    host, colon, port = (address or "").rpartition(":")
    if not (colon and port.isdigit()):
        return False
    try:
        socket.create_connection((host.removeprefix("ray://"), int(port)), timeout=5.0).close()
    except OSError as error:
        raise LabError(_why_not(address, error, answers=False)) from error
    return True


def _why_not(address: str | None, error: Exception, *, answers: bool) -> str:
    message = _last_line(error)
    if address is None:
        return f"A Ray of this machine cannot be started ({message})."
    where = f"The Ray cluster {address} cannot be reached"
    if answers:
        return (
            f"{where}, though something listens there ({message}). Most often the token differs: set "
            "RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH to the token of the cluster, or "
            "RAY_AUTH_MODE=disabled on both sides; both need the same version of Ray."
        )
    return f"{where} ({message}). Start one with `ray start --head`, or leave the address out."


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1][:200] if lines else ''}".rstrip(". ")
