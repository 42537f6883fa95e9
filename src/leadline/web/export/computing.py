"""The curves of the grid, computed beforehand by as many as two processes.

A family is one task and becomes one file. What a design cannot be built with at some depth is left
out of its family; any other error ends the export.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leadline.catalog import load_plugin
from leadline.errors import MachineError
from leadline.web.export.encoding import LabelList, encoded_parts
from leadline.web.export.grid import GridFamily

__all__ = ["MOST_PROCESSES", "ComputedFamily", "computed_families", "computed_family"]

MOST_PROCESSES = 2
"""More would take the machine away from its owner; an export is made now and then."""


@dataclass(frozen=True)
class ComputedFamily:
    """One family with its curves, as the JSON that the page decodes."""

    family: GridFamily
    depths: tuple[int, ...]
    text: str


def computed_families(
    grid: Sequence[GridFamily], *, processes: int, plugins: Sequence[str] = ()
) -> Iterator[ComputedFamily]:
    """Yield every family in the order of the grid; without processes of their own in this one."""
    if processes < 1:
        yield from map(computed_family, grid)
        return
    with _pool(min(processes, MOST_PROCESSES), plugins) as pool:
        yield from pool.map(computed_family, grid)


def computed_family(family: GridFamily) -> ComputedFamily:
    """Compute the curves of a family at all of its depths that can be built."""
    from leadline.web.playground.answer import parts_of

    words = LabelList()
    depths: dict[str, Any] = {}
    for depth in family.depths:
        parts = list(parts_of({**family.knobs_json, "depth": depth}))
        if parts[0]["part"] != "error":
            depths[str(depth)] = encoded_parts(parts, words)
    content = {"words": words.to_json(), "depths": depths}
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return ComputedFamily(family, tuple(int(depth) for depth in depths), text)


@contextmanager
def _pool(processes: int, plugins: Iterable[str]) -> Iterator[ProcessPoolExecutor]:
    """Processes that end with the block, at once if it is left by an error or Ctrl-C."""
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(
        processes, mp_context=context, initializer=_begin, initargs=(os.getpid(), tuple(plugins))
    )
    try:
        yield pool
        pool.shutdown()
    except BaseException as error:
        workers = set(multiprocessing.active_children()) - others
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.join()
        if isinstance(error, BrokenProcessPool):
            raise MachineError(
                "A process that computed designs was killed, perhaps for want of memory. In a "
                'script, call this below `if __name__ == "__main__":`, or with processes=0.'
            ) from error
        raise


def _begin(parent: int, plugins: tuple[str, ...]) -> None:
    """Prepare a process: one thread, no part in Ctrl-C, no life after its parent, the plug-ins."""
    import torch

    from leadline.lab.engines.worker import end_with

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with(parent)
    torch.set_num_threads(1)
    for file in plugins:
        load_plugin(Path(file))
