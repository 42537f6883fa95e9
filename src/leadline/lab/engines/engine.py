"""What an engine is: it runs cells and tells what it hears of them, in any order.

    run(jobs, orders) -> Generator[News | CellResult]

Every job ends with one `CellResult`, unless time is up first: from `orders.deadline` on no cell
is begun, and those that run are paused at a checkpoint. Closing the generator stops all work at
once; what was saved stays. An engine writes no record.

A cell whose worker dies is run again, from its checkpoint. It has failed when it cannot go on:

    after 3 deaths in a row at one place, which is what a cell does whose memory does not suffice
    after 30 deaths without a later checkpoint, wherever they were

Two deaths are at one place when the checkpoint did not move between them and the last steps that
were heard are no further apart than two beats of the cell are. A worker that is killed from
outside dies somewhere else each time, and a cell writes its first checkpoint with its first beat.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from leadline.catalog import Catalog

if TYPE_CHECKING:
    from leadline.lab.cell import Cell, CellResult
    from leadline.lab.trainer import Beat

__all__ = ["DEATHS", "ENGINES", "STUCK", "Deaths", "Engine", "Job", "News", "Orders"]

DEATHS = 3
"""So many deaths of its worker at one place, and a cell has failed."""
STUCK = 30
"""So many deaths without a later checkpoint, and a cell has failed."""


@dataclass(frozen=True)
class Job:
    """A cell, and the folder of its checkpoint."""

    cell: Cell
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
    """See the module's first lines. Options are the arguments of the constructor."""

    def ready(self, orders: Orders) -> AbstractContextManager[None]:
        """What must stand before a record is begun, such as a connection; a sentence if it cannot."""
        return nullcontext()

    @abstractmethod
    def run(self, jobs: Sequence[Job], orders: Orders) -> Generator[News | CellResult]:
        """Run the jobs, the first ones first."""


@dataclass
class Deaths:
    """The deaths of the workers of one cell: see the module's first lines for what they mean."""

    total: int = 0
    stuck: int = 0
    """Since the checkpoint last moved on."""
    here: int = 0
    """In a row, at one place."""
    saved: int = -2
    """The step of the checkpoint at the last death; -1 where there was none."""
    place: int = 0
    """The last step that was heard before the last death."""
    _heard: int = 0
    _beat: int = 1

    def begin(self, saved: int) -> None:
        """A worker begins at the checkpoint of this step."""
        self._heard, self._beat = max(0, saved), 1

    def hear(self, step: int) -> None:
        """The worker says that it is at this step."""
        self._beat = max(self._beat, step - self._heard)
        self._heard = step

    def count(self, saved: int) -> bool:
        """The worker died, with the checkpoint at this step; True where it should be tried again."""
        self.total += 1
        moved = saved > self.saved
        away = abs(self._heard - self.place) > self._beat
        self.stuck = 1 if moved else self.stuck + 1
        self.here = 1 if moved or away else self.here + 1
        self.saved, self.place = max(saved, self.saved), self._heard
        return self.here < DEATHS and self.stuck < STUCK

    def reason(self, worker: str, how: str, *, memory: bool) -> str:
        """Say why the cell has failed; `memory` where that is the likely cause."""
        if self.here < DEATHS:
            return (
                f"{worker} died {self.stuck} times ({how}) without a later checkpoint than that "
                f"of step {max(0, self.saved)}; find out who ends it, then try it again"
            )
        where = f"{worker} died {self.here} times ({how}) after step {self.place}"
        if not memory:
            return f"{where}; run this cell alone to see why"
        return (
            f"{where}, often because the memory did not suffice; choose a smaller width, depth or "
            "batch, or fewer workers"
        )


ENGINES: Catalog[type[Engine]] = Catalog(
    "engine", package="leadline.lab.engines", group="leadline.engines"
)
