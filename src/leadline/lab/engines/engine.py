"""What an engine is: it runs the cells of a sweep, or other work, and reports on it, in any order.

    run(jobs, orders) -> Generator[News | CellResult]

A job holds a piece of `Work` that knows how it is done: a cell of a sweep is trained, a checkpoint
of a scan is diagnosed. What is said of cells here holds for all work.

Every job ends with one `CellResult`, unless time is up first: from `orders.deadline` on no cell
is begun, and those that run are paused at a checkpoint. Closing the generator stops all work at
once; what was saved stays. An engine writes no record.

A cell whose worker dies is run again, from its checkpoint. It has failed when it cannot go on:

    after 3 deaths in a row at one place, the mark of a cell that needs more memory than there is
    after 30 deaths without a later checkpoint, wherever they were

Two deaths are at one place when the checkpoint did not move between them and the last steps that
were heard are no further apart than two beats of the cell are. A worker that is killed from
outside dies somewhere else each time, and a cell writes its first checkpoint with its first beat.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from leadline.catalog import Catalog

if TYPE_CHECKING:
    from leadline.lab.cell import CellResult
    from leadline.lab.trainer import Beat

__all__ = ["DEATHS", "ENGINES", "STUCK", "Deaths", "Engine", "Job", "News", "Orders", "Work"]

DEATHS = 3
"""A cell has failed after so many deaths of its worker at one place."""
STUCK = 30
"""A cell has failed after so many deaths without a later checkpoint."""


class Work(Protocol):
    """What a worker does: a cell of a sweep, or a checkpoint of a scan. It is sent to a process."""

    @property
    def run(self) -> str:
        """The name that tells it from all other work."""
        ...

    def perform(
        self, folder: Path | None, orders: Orders, tell: Callable[[Beat], None]
    ) -> CellResult:
        """Do it, in a worker; `tell` raises where it is to be paused."""
        ...

    def lost(self, deaths: Deaths, *, worker: str, how: str, memory: bool) -> CellResult:
        """Say that it has failed, because its workers died; `memory` where that is the likely cause."""
        ...


@dataclass(frozen=True)
class Job:
    """A piece of work, such as a cell, and the folder of its checkpoint."""

    cell: Work
    folder: Path


@dataclass(frozen=True)
class Orders:
    """How many workers of how many threads, seconds between checkpoints, and until when."""

    workers: int | None = None
    threads: int = 1
    every: float = 10.0
    deadline: float = float("inf")
    """On the clock of `time.monotonic`."""
    plugins: tuple[str, ...] = ()
    """Files that a worker runs first, so that it knows their entries."""
    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    """The digests of the tasks that read a text; a worker refuses another text."""

    @property
    def over(self) -> bool:
        """Whether time is up."""
        return time.monotonic() >= self.deadline


@dataclass(frozen=True)
class News:
    """What a running cell says; `beat` is None when it begins."""

    run: str
    beat: Beat | None = None
    worker: int = 0
    """The id of the process."""


class Engine(ABC):
    """Runs the cells of a sweep; its options are the arguments of the constructor."""

    def ready(self, orders: Orders) -> AbstractContextManager[None]:
        """Set up what the cells need, such as a connection, before the record is begun, or refuse."""
        return nullcontext()

    @abstractmethod
    def run(self, jobs: Sequence[Job], orders: Orders) -> Generator[News | CellResult]:
        """Run the jobs, the first ones first."""


@dataclass
class Deaths:
    """Counts how often the workers of one cell died, and decides whether the cell is tried again."""

    total: int = 0
    stuck: int = 0
    """Since the checkpoint last moved on."""
    here: int = 0
    """In a row, at one place."""
    saved: int = -2
    """The step of the checkpoint at the last death; -1 where there was none."""
    place: int = 0
    """The last step that was heard before the last death."""
    _last_step: int = 0
    _beat: int = 1

    def begin(self, saved: int) -> None:
        """Note that a worker begins at the checkpoint of this step."""
        self._last_step, self._beat = max(0, saved), 1

    def hear(self, step: int) -> None:
        """Note that the worker has reached this step."""
        self._beat = max(self._beat, step - self._last_step)
        self._last_step = step

    def count(self, saved: int) -> bool:
        """Count a death with the checkpoint at this step; return whether to try the cell again."""
        self.total += 1
        moved = saved > self.saved
        away = abs(self._last_step - self.place) > self._beat
        self.stuck = 1 if moved else self.stuck + 1
        self.here = 1 if moved or away else self.here + 1
        self.saved, self.place = max(saved, self.saved), self._last_step
        return self.here < DEATHS and self.stuck < STUCK

    def reason(self, worker: str, how: str, *, memory: bool) -> str:
        """Say why the cell has failed; `memory` where that is the likely cause."""
        if self.here < DEATHS:
            return (
                f"{worker} died {self.stuck} times ({how}) without a later checkpoint than that "
                f"of step {max(0, self.saved)}; find out what ends it, then try it again"
            )
        where = f"{worker} died {self.here} times ({how}) after step {self.place}"
        if not memory:
            return f"{where}; run this cell alone to see why"
        return (
            f"{where}, often because memory ran out; choose a smaller width, depth or "
            "batch, or fewer workers"
        )


ENGINES: Catalog[type[Engine]] = Catalog(
    "engine", package="leadline.lab.engines", group="leadline.engines"
)
