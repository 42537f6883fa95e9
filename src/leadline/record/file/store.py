"""The record file: one SQLite database with a few tables.

Files are written with a write-ahead log, so that a second process reads while the first still
writes, or with a rollback journal, which readers on other machines need; closing folds the log into the one file and writes its checksums. Readings can be added but
neither changed nor deleted: triggers refuse it, whatever program asks. SQLite has no NaN: it is
kept as NULL.

A schema number stands in `PRAGMA user_version`. A file of an older schema is migrated: in memory
when it is read, in one transaction when it is written to. A file of a newer one is refused.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from contextlib import closing, suppress
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from leadline.errors import RecordError
from leadline.record.file.checksum import (
    Integrity,
    check_file,
    mark_unclosed,
    seal_file,
    seal_tables,
)
from leadline.record.file.faults import (
    READING_ERRORS,
    cannot_read,
    cannot_save,
    cannot_write,
    damaged,
)
from leadline.record.file.lock import WritingConnection
from leadline.record.file.migrations import FIRST_SCHEMA, migrate
from leadline.record.file.schema import APPLICATION_ID, SCHEMA, write_schema
from leadline.record.file.snapshot import copy_of_file, uses_write_ahead_log
from leadline.record.file.writer import writer_of

__all__ = [
    "Journal",
    "create_file",
    "create_in_memory",
    "finish",
    "fold_log",
    "is_empty_file",
    "is_record_file",
    "open_file",
    "open_to_follow",
    "reopen_file",
    "save_file",
]

_SQLITE_HEADER = b"SQLite format 3\x00"
_LOCKS_OF_NO_USE = {
    sqlite3.SQLITE_READONLY_ROLLBACK,
    sqlite3.SQLITE_IOERR_LOCK,
    sqlite3.SQLITE_IOERR_RDLOCK,
}
"""A writer was killed in a transaction that a reader cannot undo, or the disk has no locks."""
_APPLICATION_ID_AT = 68  # where the SQLite file format keeps it, four bytes, big-endian


Journal = Literal["wal", "delete"]
"""How a growing file keeps what is being written: in a log beside it, or in a rollback journal.

A log lets readers read while a transaction is written, but only on the machine that writes: they
share its memory. A file with a rollback journal is read from anywhere, between two transactions.
"""


def _choose_journal(connection: sqlite3.Connection, journal: Journal) -> None:
    connection.execute(f"PRAGMA journal_mode = {journal}")
    connection.execute("PRAGMA synchronous = NORMAL")


def create_in_memory() -> sqlite3.Connection:
    """Start an empty record that lives in memory."""
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    write_schema(connection)
    return connection


def create_file(path: Path, *, journal: Journal = "wal") -> sqlite3.Connection:
    """Start a record file that others can read while it is being written.

    An empty file is taken: `mktemp` makes one, and so does a writer that is killed at its beginning.
    """
    empty = is_empty_file(path)
    if path.exists() and not empty:
        raise RecordError(
            f"Cannot start a record at {path}: the file exists already. "
            "Choose another name or remove it."
        )
    try:
        # Creating the file first gives the plain reason (no such folder, no permission). A link may
        # lead to a file that is not there yet.
        path.resolve().touch(exist_ok=empty)
    except OSError as error:
        raise cannot_save(path, error) from error
    try:
        connection = WritingConnection(path, check_same_thread=False)
        _choose_journal(connection, journal)
        write_schema(connection)
    except (sqlite3.Error, OSError) as error:
        if not empty:
            path.resolve().unlink(missing_ok=True)
        raise cannot_save(path, error) from error
    return connection


def reopen_file(path: Path, *, journal: Journal = "wal") -> sqlite3.Connection:
    """Open a record file to add to it. What a killed writer had committed is there.

    A file that is being written, by another process or by this one, is refused.
    """
    open_file(path)[0].close()
    try:
        connection = WritingConnection(path, check_same_thread=False)
    except (sqlite3.Error, OSError) as error:
        raise cannot_write(path, error) from error
    try:
        _choose_journal(connection, journal)
        mark_unclosed(connection)
        migrate(connection, SCHEMA)
        fold_log(connection)  # otherwise a file that loses its log would count as closed
    except sqlite3.Error as error:
        connection.close()
        raise cannot_write(path, error) from error
    return connection


def open_file(path: Path) -> tuple[sqlite3.Connection, Integrity]:
    """Open a record file for reading, with what is known about it.

    A file that is not a whole record, or not what was written, is refused. One of an older schema
    is copied to memory and migrated there.
    """
    _refuse_foreign(path)
    try:
        connection = _connect_to_read(path)
    except READING_ERRORS as error:
        raise cannot_read(path, error) from error
    try:
        schema = _schema_of(connection, path)
        integrity = check_file(connection, path.resolve(), schema=schema)
        if schema < SCHEMA:
            connection = _migrated_copy(connection)
    except READING_ERRORS as error:
        connection.close()
        raise cannot_read(path, error) from error
    except RecordError:
        connection.close()
        raise
    return connection, integrity


def open_to_follow(path: Path, *, timeout: float) -> sqlite3.Connection:
    """Open a record file for one look at it, without the checks that read all of it.

    They would hold up a writer with a rollback journal for as long as they take. An empty database,
    which a writer has just begun, is opened too.
    """
    _refuse_foreign(path)
    connection = _connect_to_read(path, timeout=timeout)
    try:
        empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
        if not empty and _schema_of(connection, path) < SCHEMA:
            connection = _migrated_copy(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _migrated_copy(connection: sqlite3.Connection) -> sqlite3.Connection:
    memory = sqlite3.connect(":memory:", check_same_thread=False)
    try:
        connection.backup(memory)
        migrate(memory, SCHEMA)
    except BaseException:
        memory.close()
        raise
    connection.close()
    return memory


def is_record_file(path: Path) -> bool:
    """Say whether the file begins like a record: an SQLite file with our application id.

    Only a regular file is read: a named pipe would keep its reader waiting for ever.
    """
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            head = file.read(100)
    except OSError:
        return False
    application = head[_APPLICATION_ID_AT : _APPLICATION_ID_AT + 4]
    return head.startswith(_SQLITE_HEADER) and application == APPLICATION_ID.to_bytes(4, "big")


def is_empty_file(path: Path) -> bool:
    """Say whether this is a regular file that holds nothing."""
    return path.is_file() and path.stat().st_size == 0


def save_file(connection: sqlite3.Connection, path: Path) -> None:
    """Write the whole record to `path` in one step: a reader finds the old file or the new one."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise cannot_save(path, "it is a folder")
    if target.exists() and not target.is_file():
        raise cannot_save(path, "it is not a regular file")
    if Path(f"{target}-wal").exists():
        raise cannot_save(
            path, f"a record there is still being written, or was never closed ({target.name}-wal)"
        )
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}.partial")
    try:
        partial.touch(exist_ok=False)
        with closing(sqlite3.connect(partial)) as copy:
            connection.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
            mark_unclosed(copy)  # a record from before checksums has no table for them
            seal_tables(copy)
            seal_file(copy, partial)
        os.replace(partial, target)  # noqa: PTH105 (the atomic call, by its own name)
    except OSError as error:
        raise cannot_save(path, error) from error
    except sqlite3.Error as error:
        raise cannot_save(path, error) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def fold_log(connection: sqlite3.Connection) -> None:
    """Bring everything that stands in the log of a growing record into the file itself."""
    connection.execute("PRAGMA wal_checkpoint (TRUNCATE)")


def finish(connection: sqlite3.Connection, *, written: Path | None, process: int) -> None:
    """Close the connection. The file that it wrote, if any, becomes a plain one with checksums.

    A forked copy of the process that opened it leaves everything as it is: SQLite allows it nothing
    else, and the file would count as closed while its writer goes on. Where closing fails, because
    a reader still has the file open or the disk is full, all rows are still in the file or its log.
    """
    if os.getpid() != process:
        return
    if written is not None:
        with suppress(sqlite3.Error):
            connection.rollback()
            seal_tables(connection)
        with suppress(sqlite3.Error, OSError):
            fold_log(connection)
            connection.execute("PRAGMA journal_mode = DELETE")
            seal_file(connection, written)
    connection.close()


def _connect_to_read(path: Path, *, timeout: float = 5.0) -> sqlite3.Connection:
    writer = writer_of(path)
    if writer is not None and not writer.here and uses_write_ahead_log(path):
        return copy_of_file(path)
    address = f"file:{quote(os.fsencode(path.resolve()))}?mode=ro"
    connection = sqlite3.connect(address, uri=True, check_same_thread=False, timeout=timeout)
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.OperationalError as error:
        connection.close()
        if error.sqlite_errorcode in _LOCKS_OF_NO_USE:
            return copy_of_file(path)
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY or Path(f"{path}-wal").exists():
            raise
        # A file in a folder that cannot be written: nobody else writes, so no log is needed.
        address += "&immutable=1"
        connection = sqlite3.connect(address, uri=True, check_same_thread=False)
    except READING_ERRORS:
        connection.close()
        raise
    return connection


def _refuse_foreign(path: Path) -> None:
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise RecordError(f"{path} is no regular file; give the file of a record.")
    try:
        with path.open("rb") as file:
            head = file.read(100)
    except FileNotFoundError as error:
        raise RecordError(f"There is no record at {path}: no such file.") from error
    except OSError as error:
        raise RecordError(f"Cannot read the record {path}: {error.strerror}.") from error
    if not head.startswith(_SQLITE_HEADER):
        raise RecordError(
            f"{path} is not a Leadline record: it is not an SQLite file. "
            "Give a file that `leadline measure` or record.save() wrote."
        )


def _schema_of(connection: sqlite3.Connection, path: Path) -> int:
    """The schema of a record file; what is no record, or newer than this program, is refused."""
    application = _pragma(connection, "application_id")
    if application != APPLICATION_ID:
        raise RecordError(
            f"{path} is an SQLite file, but not a Leadline record. "
            "Give a file that `leadline measure` or record.save() wrote."
        )
    schema = _pragma(connection, "user_version")
    if schema > SCHEMA:
        raise RecordError(
            f"{path} was written by a newer leadline (schema {schema}, this one reads {SCHEMA}): "
            "upgrade leadline to read it."
        )
    if schema < FIRST_SCHEMA:
        raise damaged(path, f"its schema is {schema}, and the first one was {FIRST_SCHEMA}")
    return schema


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
