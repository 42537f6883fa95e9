"""A copy of a record file as it stood at one moment, taken without SQLite's locks.

SQLite's own reading is right wherever its locks work. They do not in three places:

- A write-ahead log has its index in memory that the processes of one machine share, so that "WAL
  does not work over a network filesystem" (sqlite.org/wal.html). A reader on another machine could
  even damage that index, so it must not open the file at all.
- A writer that was killed in the middle of a transaction leaves a rollback journal with the pages
  as they were ("hot", sqlite.org/lockingv3.html). Whoever reads next has to put them back, and a
  reader that may not write is refused (SQLITE_READONLY_ROLLBACK).
- Some shared disks have no locks at all.

In these the file is copied with its journal or log, and SQLite puts the copy in order. The copy is
of one moment if nothing moved meanwhile. With a rollback journal pages change only while the
journal is there, and every transaction counts itself in the header (bytes 24 to 27 of the file).
With a write-ahead log pages come into the file out of the log, and a log that begins anew has
another header: the file is copied before its log, so that the log holds all that may be torn in
the file.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import threading
from contextlib import closing
from pathlib import Path

__all__ = ["copy_of_file", "uses_write_ahead_log"]

TRIES = 20
"""So often a copy is begun again while the writer is at work."""
PAUSE = 0.05
"""Seconds between two tries."""
_WRITE_VERSION_AT = 18  # 2 where the file has a write-ahead log, 1 where it has a journal
_LOG_HEADER = 32
_JOURNAL_HEADER = 28


def uses_write_ahead_log(path: Path) -> bool:
    """Say whether the header of a file names a write-ahead log; False where it cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(_WRITE_VERSION_AT + 1)
    except OSError:
        return False
    return len(head) > _WRITE_VERSION_AT and head[_WRITE_VERSION_AT] == 2


def copy_of_file(path: Path) -> sqlite3.Connection:
    """Return what a file holds as a database in memory; the file and what stands beside it stay.

    Raises sqlite3.OperationalError where the writer never rests for long enough.
    """
    for attempt in range(TRIES):
        if attempt:
            threading.Event().wait(PAUSE)
        with tempfile.TemporaryDirectory(prefix="leadline-") as folder:
            copy = Path(folder) / "copy"
            before = _state(path)
            try:
                shutil.copyfile(path, copy)
                for ending in ("-journal", "-wal"):
                    beside = Path(f"{path}{ending}")
                    if beside.exists():
                        shutil.copyfile(beside, f"{copy}{ending}")
            except FileNotFoundError:  # a journal goes with its transaction
                continue
            if _state(path) == before:
                return _in_memory(copy)
    busy = sqlite3.OperationalError("the file is being written without a pause")
    busy.sqlite_errorcode = sqlite3.SQLITE_BUSY
    raise busy


def _in_memory(copy: Path) -> sqlite3.Connection:
    memory = sqlite3.connect(":memory:", check_same_thread=False)
    try:
        with closing(sqlite3.connect(copy)) as connection:
            connection.backup(memory)
        # The copy was in WAL mode, which a database in memory cannot have.
        memory.execute("PRAGMA journal_mode = MEMORY")
    except BaseException:
        memory.close()
        raise
    return memory


def _state(path: Path) -> tuple[object, ...]:
    """What has changed if a transaction came in between."""
    if uses_write_ahead_log(path):
        # Rows that are added to the log meanwhile do no harm: the copy ends at its last commit.
        return ("log", _head(Path(f"{path}-wal"), _LOG_HEADER))
    journal = Path(f"{path}-journal")
    return ("journal", _head(path, 100), _size_and_time(path), _head(journal, _JOURNAL_HEADER),
            _size_and_time(journal))  # fmt: skip


def _head(path: Path, count: int) -> bytes | None:
    try:
        # Opening asks a network disk for the file as it is now, where a plain stat may be old.
        with path.open("rb") as file:
            return file.read(count)
    except FileNotFoundError:
        return None


def _size_and_time(path: Path) -> tuple[int, int] | None:
    try:
        facts = os.stat(path)  # noqa: PTH116 (the call, by its own name)
    except FileNotFoundError:
        return None
    return facts.st_size, facts.st_mtime_ns
