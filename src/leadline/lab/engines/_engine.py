"""What an engine is: it runs cells and tells what it hears of them, in any order.

    run(jobs, orders) -> Generator[News | CellResult]

Every job ends with one `CellResult`, unless time is up first: from `orders.deadline` on no cell
is begun, and those that run are paused at a checkpoint. Closing the generator stops all work at
once; what was saved stays. An engine writes no record.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from leadline.catalog import Catalog

if TYPE_CHECKING:
    from leadline.lab.cell import Cell, CellResult
    from leadline.lab.trainer import Beat

__all__ = ["DEATHS", "ENGINES", "Deaths", "Engine", "Job", "News", "Orders"]

DEATHS = 3
"""So many deaths of its worker without a later checkpoint, and a cell has failed."""


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

    @abstractmethod
    def run(self, jobs: Sequence[Job], orders: Orders) -> Generator[News | CellResult]:
        """Run the jobs, the first ones first."""


@dataclass
class Deaths:
    """How often the worker of a cell died, in all and since its checkpoint last moved on."""

    total: int = 0
    in_vain: int = 0
    step: int = field(default=-2)

    def count(self, step: int) -> bool:
        """Count one more, with the checkpoint at `step`; True where it should be tried again."""
        self.total += 1
        self.in_vain = 1 if step > self.step else self.in_vain + 1
        self.step = max(step, self.step)
        return self.in_vain < DEATHS


ENGINES: Catalog[type[Engine]] = Catalog(
    "engine", package="leadline.lab.engines", group="leadline.engines"
)
