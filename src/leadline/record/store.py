"""The record file: one SQLite database with a few tables.

Files are written with a write-ahead log, so that a second process reads while the first still
writes; closing folds the log into the one file. Readings can be added but neither changed nor
deleted: triggers refuse it, whatever program asks. SQLite has no NaN: it is kept as NULL.

A schema number stands in `PRAGMA user_version`. A file of another schema is refused: there are no
migrations.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

from leadline.errors import RecordError

__all__ = [
    "APPLICATION_ID",
    "READING_COLUMNS",
    "SCHEMA",
    "create_file",
    "create_in_memory",
    "finish",
    "fold_log",
    "is_record_file",
    "open_file",
    "reopen_file",
    "save_file",
]

SCHEMA = 1
APPLICATION_ID = 0x4C45_4144  # "LEAD" in ASCII
_SQLITE_HEADER = b"SQLite format 3\x00"
_APPLICATION_ID_AT = 68  # where the SQLite file format keeps it, four bytes, big-endian

READING_COLUMNS: tuple[str, ...] = (
    "run",
    "step",
    "seed",
    "quantity",
    "statistic",
    "stack",
    "layer",
    "sublayer",
    "point",
    "lane",
    "head",
    "token",
    "rank",
    "value",
    "lower",
    "upper",
)

_TABLES = """
CREATE TABLE provenance (
    key TEXT PRIMARY KEY,
    json TEXT NOT NULL
);
CREATE TABLE quantity (
    name TEXT PRIMARY KEY,
    title TEXT NOT NULL,
    symbol TEXT NOT NULL,
    formula TEXT NOT NULL,
    unit TEXT NOT NULL,
    lives_on TEXT NOT NULL,
    high TEXT NOT NULL,
    low TEXT NOT NULL,
    source TEXT NOT NULL,
    scale TEXT NOT NULL,
    headline TEXT NOT NULL
);
CREATE TABLE finding (
    verdict TEXT NOT NULL,
    quantity TEXT,
    severity TEXT NOT NULL,
    stack TEXT,
    layer INTEGER,
    sublayer INTEGER,
    point TEXT,
    lane INTEGER,
    head INTEGER,
    token INTEGER,
    rank INTEGER
);
CREATE TABLE reading (
    run TEXT NOT NULL,
    step INTEGER NOT NULL,
    seed INTEGER,
    quantity TEXT NOT NULL REFERENCES quantity (name),
    statistic TEXT NOT NULL,
    stack TEXT NOT NULL,
    layer INTEGER NOT NULL,
    sublayer INTEGER,
    point TEXT NOT NULL,
    lane INTEGER,
    head INTEGER,
    token INTEGER,
    rank INTEGER,
    value REAL,
    lower REAL,
    upper REAL
);
CREATE INDEX reading_by_quantity ON reading (quantity, run, step);
CREATE TRIGGER reading_is_never_changed BEFORE UPDATE ON reading
BEGIN SELECT RAISE (ABORT, 'a record is append-only: readings are never changed'); END;
CREATE TRIGGER reading_is_never_deleted BEFORE DELETE ON reading
BEGIN SELECT RAISE (ABORT, 'a record is append-only: readings are never deleted'); END;
"""


def create_in_memory() -> sqlite3.Connection:
    """Start an empty record that lives in memory."""
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    _write_schema(connection)
    return connection


def create_file(path: Path) -> sqlite3.Connection:
    """Start an empty record file that others can read while it is being written."""
    if path.exists():
        raise RecordError(
            f"Cannot start a record at {path}: the file exists already. "
            "Choose another name or remove it."
        )
    try:
        # Creating the file first gives the plain reason (no such folder, no permission).
        path.touch(exist_ok=False)
    except OSError as error:
        raise _unwritable(path, error.strerror or str(error)) from error
    try:
        connection = sqlite3.connect(path, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        _write_schema(connection)
    except sqlite3.Error as error:
        path.unlink(missing_ok=True)
        raise _unwritable(path, str(error)) from error
    return connection


def reopen_file(path: Path) -> sqlite3.Connection:
    """Open a record file to add to it. What a writer that was killed had committed is there."""
    open_file(path).close()
    try:
        connection = sqlite3.connect(path, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
    except sqlite3.Error as error:
        raise _unwritable(path, str(error)) from error
    return connection


def open_file(path: Path) -> sqlite3.Connection:
    """Open a record file for reading; a file that is not a whole record is refused."""
    _refuse_foreign(path)
    try:
        connection = _connect_to_read(path)
    except sqlite3.OperationalError as error:
        raise RecordError(f"Cannot read the record {path}: {error}.") from error
    except sqlite3.DatabaseError as error:
        raise _damaged(path, str(error)) from error
    try:
        _refuse_other_schema(connection, path)
        _refuse_broken(connection, path)
    except sqlite3.Error as error:
        connection.close()
        raise _damaged(path, str(error)) from error
    except RecordError:
        connection.close()
        raise
    return connection


def is_record_file(path: Path) -> bool:
    """Say whether the file begins like a record: an SQLite file with our application id."""
    try:
        with path.open("rb") as file:
            head = file.read(100)
    except OSError:
        return False
    application = head[_APPLICATION_ID_AT : _APPLICATION_ID_AT + 4]
    return head.startswith(_SQLITE_HEADER) and application == APPLICATION_ID.to_bytes(4, "big")


def save_file(connection: sqlite3.Connection, path: Path) -> None:
    """Write the whole record to `path` in one step: a reader finds the old file or the new one."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise _unwritable(path, "it is a folder")
    if target.exists() and not target.is_file():
        raise _unwritable(path, "it is no ordinary file")
    if Path(f"{target}-wal").exists():
        raise _unwritable(
            path, f"a record there is still being written, or was never closed ({target.name}-wal)"
        )
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}.partial")
    try:
        partial.touch(exist_ok=False)
        with closing(sqlite3.connect(partial)) as copy:
            connection.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
        os.replace(partial, target)  # noqa: PTH105 (the atomic call, by its own name)
    except OSError as error:
        raise _unwritable(path, error.strerror or str(error)) from error
    except sqlite3.Error as error:
        raise _unwritable(path, str(error)) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def fold_log(connection: sqlite3.Connection) -> None:
    """Bring everything that stands in the log of a growing record into the file itself."""
    connection.execute("PRAGMA wal_checkpoint (TRUNCATE)")


def finish(connection: sqlite3.Connection, *, writer: bool) -> None:
    """Close the connection; a writer leaves one plain file without a log beside it."""
    if writer:
        # A reader that still looks on keeps the log alive; the rows are in the file all the same.
        with suppress(sqlite3.OperationalError):
            fold_log(connection)
            connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()


def _write_schema(connection: sqlite3.Connection) -> None:
    connection.executescript(
        f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA};"
        f"BEGIN; {_TABLES} COMMIT;"
    )


def _connect_to_read(path: Path) -> sqlite3.Connection:
    address = f"file:{quote(str(path.resolve()))}?mode=ro"
    connection = sqlite3.connect(address, uri=True, check_same_thread=False)
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.OperationalError:
        connection.close()
        if Path(f"{path}-wal").exists():
            raise
        # A file in a folder that cannot be written: nobody else writes, so no log is needed.
        address += "&immutable=1"
        connection = sqlite3.connect(address, uri=True, check_same_thread=False)
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection


def _refuse_foreign(path: Path) -> None:
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


def _refuse_other_schema(connection: sqlite3.Connection, path: Path) -> None:
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
    if schema < SCHEMA:
        raise RecordError(
            f"{path} was written by an older leadline (schema {schema}, this one reads {SCHEMA}) "
            "and cannot be migrated: measure again."
        )


def _refuse_broken(connection: sqlite3.Connection, path: Path) -> None:
    verdict = connection.execute("PRAGMA quick_check (1)").fetchone()[0]
    if verdict != "ok":
        raise _damaged(path, verdict)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _damaged(path: Path, reason: str) -> RecordError:
    reason = " ".join(reason.split()).removeprefix("*** in database main *** ")
    return RecordError(
        f"The record {path} is damaged or cut short ({reason}): copy it again or measure again."
    )


def _unwritable(path: Path, reason: str) -> RecordError:
    return RecordError(
        f"Cannot write the record {path}: {reason}. Choose a file in a folder that can be written."
    )
