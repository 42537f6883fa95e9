"""One writer at a time: a lock file that is held as long as its process lives.

The lock is on a file of its own, never on the record: closing any handle of a file that SQLite has
open would let go of the locks that SQLite holds on it. The system releases the lock when the
process ends, however it ends.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from leadline.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["WritingConnection", "only_writer", "take_lock"]


class WritingConnection(sqlite3.Connection):
    """A connection that writes a record, the only one of all processes until it is closed.

    A measurement holds the lock of `only_writer` for longer, also before its file is there, so this
    lock has a file of its own, which says who holds it.
    """

    def __init__(self, path: Path, **options: Any) -> None:
        self._beside = Path(f"{os.path.realpath(path)}.writer")
        self._lock = take_lock(self._beside)
        if self._lock is None:
            raise RecordError(_already_written(path, self._beside))
        self._lock.truncate(0)
        self._lock.write(
            f"{os.getpid()}\n{platform.node()}\n{time.strftime('%Y-%m-%d %H:%M:%S')}\n"
        )
        self._lock.flush()
        try:
            super().__init__(path, **options)
        except sqlite3.Error:
            self._let_go()
            raise

    def close(self) -> None:
        """Close the connection, then let the next writer in."""
        super().close()
        self._let_go()

    def _let_go(self) -> None:
        if self._lock is None:
            return
        if os.name != "nt":  # while it is held, so that nobody waits for a lost file
            self._beside.unlink(missing_ok=True)
        self._lock.close()
        self._lock = None
        if os.name == "nt":
            with suppress(OSError):
                self._beside.unlink(missing_ok=True)


def _already_written(path: Path, beside: Path) -> str:
    """Say who writes a record, and what to do; on Windows a lock that is held cannot be read."""
    with suppress(OSError, ValueError):
        process, host, since = beside.read_text().splitlines()
        if (int(process), host) == (os.getpid(), platform.node()):
            return (
                f"The record {path} is open for writing in this process already, since {since}: "
                "close that record first (record.close()), or read this one with "
                "leadline.Record.open(path)."
            )
        return (
            f"Process {process} on {host} has been writing the record {path} since {since}: wait "
            "until it ends, or choose another file; leadline.Record.open(path) reads it meanwhile."
        )
    return (
        f"Another process is writing the record {path}: wait until it ends, or choose another "
        "file; leadline.Record.open(path) reads it meanwhile."
    )


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
