"""The errors of a record file as sentences: a full disk, a damaged file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from leadline.errors import FULL_DISK, RecordError

__all__ = [
    "READING_ERRORS",
    "cannot_read",
    "cannot_save",
    "cannot_write",
    "changed",
    "damaged",
    "one_line",
]

READING_ERRORS = (sqlite3.Error, UnicodeError, MemoryError)
"""What SQLite raises on a damaged file: some of its messages quote bytes that are not text, and
some lengths in the file are larger than any memory."""

_DISK = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}
_ACCESS = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_READONLY,
}


def cannot_read(path: Path | str, error: Exception) -> RecordError:
    """Return the error for a file that could not be read."""
    if _is_disk(error):
        return RecordError(
            f"Cannot read the record {path}: {_no_disk(error)}. What it holds is kept; free some "
            "space and run the same command again."
        )
    if _code(error) in _ACCESS:
        return RecordError(f"Cannot read the record {path}: {one_line(str(error))}.")
    return damaged(path, str(error))


def cannot_write(path: Path | str, error: Exception) -> RecordError:
    """Return the error for rows that could not be added to a file, or to a record in memory."""
    if _is_disk(error):
        return RecordError(
            f"Cannot write to the record {path}: {_no_disk(error)}. What it held before is kept; "
            "free some space and run the same command again to go on."
        )
    return RecordError(f"Cannot write to the record {path}: {one_line(str(error))}.")


def cannot_save(path: Path, error: Exception | str) -> RecordError:
    """Return the error for a file that could not be written."""
    if isinstance(error, Exception) and _is_disk(error):
        return RecordError(
            f"Cannot write the record {path}: {_no_disk(error)}. Free some space or choose another "
            "folder; a file that stood there before is kept."
        )
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return RecordError(
        f"Cannot write the record {path}: {reason}. Choose a file in a folder that can be written."
    )


def damaged(path: Path | str, reason: str) -> RecordError:
    """Return the error for a file that cannot be read as a record."""
    return RecordError(
        f"The record {path} is damaged or cut short ({one_line(reason)}): copy it again or "
        "measure again."
    )


def changed(path: Path, what: str) -> RecordError:
    """Return the error for a closed file that is not what was written."""
    return RecordError(
        f"The record {path} was changed or damaged after it was written: {what}. "
        "Copy it again or measure again."
    )


def one_line(reason: str) -> str:
    """Return a message of SQLite as part of a sentence."""
    return " ".join(reason.split()).removeprefix("*** in database main *** ").rstrip(".")


def _is_disk(error: Exception) -> bool:
    """Whether the disk is at fault. A log that finds no space is an I/O error, even to a reader."""
    if isinstance(error, OSError):
        return error.errno in FULL_DISK
    return _code(error) in _DISK


def _no_disk(error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) else one_line(str(error))
    return f"the disk is full or fails ({reason})"


def _code(error: Exception) -> int | None:
    """The primary code of an error of SQLite; None where it has none."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else None
