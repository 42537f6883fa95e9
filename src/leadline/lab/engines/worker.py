"""What a worker process of the local engine does: one cell after the other, until it is ended.

One thread listens to the coordinator, so that a worker whose coordinator has died ends at once,
in the middle of whatever it does. On Linux the kernel does the same.
"""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import sys
import threading
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from leadline.catalog import load_plugin
from leadline.errors import LabError
from leadline.lab.engines.engine import Job, News, Orders

if TYPE_CHECKING:
    from leadline.lab.trainer import Beat

__all__ = ["HALT", "NEWS", "PAUSE", "PAUSED", "READY", "RESULT", "end_with", "work"]

READY, NEWS, RESULT, PAUSED, HALT, PAUSE = "ready", "news", "result", "paused", "halt", "pause"
_PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def work(pipe: Connection, orders: Orders, parent: int) -> None:
    """Run the jobs that come through the pipe; send news and results back."""
    end_with(parent)
    jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
    pausing = threading.Event()

    def listen() -> None:
        try:
            while True:
                order = pipe.recv()
                if order == PAUSE:
                    pausing.set()
                else:
                    jobs.put(order)
        except (EOFError, OSError):
            os._exit(1)

    threading.Thread(target=listen, daemon=True).start()
    from leadline.lab.cell import Paused  # torch, after the environment was set

    for file in orders.plugins:
        load_plugin(file)
    pipe.send((READY, None))
    while True:
        job = jobs.get()
        run = job.cell.run

        def tell(beat: Beat, run: str = run) -> None:
            if pausing.is_set():
                raise Paused
            pipe.send((NEWS, News(run, beat, os.getpid())))

        try:
            pipe.send((RESULT, job.cell.perform(job.folder, orders, tell)))
        except Paused:
            pipe.send((PAUSED, None))
        except LabError as error:
            pipe.send((HALT, str(error)))


def end_with(parent: int) -> None:
    """Let the kernel end this process when its parent dies, where the kernel can."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has died already
        os._exit(1)
