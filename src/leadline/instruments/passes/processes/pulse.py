"""Whether the other processes are still there: each says so again and again, from a thread of its own.

Between two words of a process may lie a long stage, so nobody can tell from its silence that it was
ended from outside. A thread goes on while the stage lasts, and ends with the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch.distributed as dist

__all__ = ["SILENCE", "Pulse"]

EVERY = 2.0
"""Seconds between two beats."""
SILENCE = 60.0
"""Seconds without a beat after which a process counts as gone."""


class Pulse:
    """The beats of one process, and what it hears of those of the others."""

    def __init__(self, store: Any, name: str, *, rank: int) -> None:
        self._store: Any = dist.PrefixStore(  # pyright: ignore[reportPrivateImportUsage]
            f"leadline/{name}/pulse", store
        )
        self._rank = rank
        self._heard: dict[int, tuple[int, float]] = {}
        self._over = threading.Event()

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Say meanwhile that this process is there."""
        threading.Thread(target=self._beat, name="leadline-pulse", daemon=True).start()
        try:
            yield
        finally:
            self._over.set()

    def is_silent(self, rank: int) -> bool:
        """Whether nothing has been heard of a process for too long, since it was first asked about."""
        count, now = self._store.add(f"{rank}", 0), time.monotonic()
        last, since = self._heard.get(rank, (None, now))
        if count != last:
            self._heard[rank] = (count, now)
            return False
        return now - since > SILENCE

    def _beat(self) -> None:
        with suppress(Exception):  # a store that is gone is said by whoever needs its answer
            while not self._over.is_set():
                self._store.add(f"{self._rank}", 1)
                self._over.wait(EVERY)
