"""Which engine a command line asks for, and how long work on it is interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from leadline.catalog import Choice
from leadline.errors import LabError

__all__ = ["engine_choice", "interruptible"]


def engine_choice(name: str, address: str | None) -> Choice:
    """Read --engine and --address."""
    choice = Choice.parse(name)
    if address is None:
        return choice
    if choice.name != "ray":
        raise LabError("--address names a Ray cluster; give --engine ray too.")
    return Choice("ray", **{**choice.options, "address": address})


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM stop the work as Ctrl-C does."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # it may set no handler
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
