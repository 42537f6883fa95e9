"""One writer at a time: a lock file that is held as long as its process lives.

The lock is on a file of its own, never on the record: closing any handle of a file that SQLite has
open would let go of the locks that SQLite holds on it. The system releases the lock when the
process ends, however it ends.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

from leadline.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

__all__ = ["only_writer", "take_lock"]


@contextmanager
def only_writer(path: Path) -> Generator[None]:
    """Hold the record at `path` while inside; a second writer is refused."""
    beside = path.with_name(f"{path.name}.lock")
    try:
        lock = take_lock(beside)
    except OSError as error:
        raise RecordError(
            f"The record {path} cannot be written: {error.strerror}; choose a file in a folder "
            "that can be written."
        ) from error
    if lock is None:
        raise RecordError(
            f"Another measurement is at work on {path}; wait until it ends, or choose another file."
        )
    try:
        yield
    finally:
        if os.name != "nt":  # while it is held, so that nobody waits for a lost file
            beside.unlink(missing_ok=True)
        lock.close()
        if os.name == "nt":
            with suppress(OSError):
                beside.unlink(missing_ok=True)


def take_lock(path: Path) -> IO[str] | None:
    """Return the lock file, locked until it is closed; None where another process holds it.

    The folder is created if needed: the previous holder may have removed it with the lock.
    """
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
        if not _lock(file):
            file.close()
            return None
        with suppress(FileNotFoundError):
            if os.name == "nt" or os.fstat(file.fileno()).st_ino == path.stat().st_ino:
                return file
        # It was removed by a writer that ended meanwhile.
        file.close()


def _lock(file: IO[str]) -> bool:
    """Lock an open file until it is closed, or until the process ends; False where it is taken."""
    if os.name == "nt":
        import msvcrt

        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # pyright: ignore
        except OSError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
