"""Follow a record file that another process is writing: look now and then, read what is new.

Readings are append-only, so a look asks for the rows behind the last one that it has seen. A look
opens the file, reads and closes it: an open reader would keep a writer with a write-ahead log from
folding it, and with a rollback journal a reader that is reading keeps the writer waiting, so rows
are read in portions. Where the writer is at work the look ends, and the next one goes on.

Only summaries are read, the headline statistic of each quantity without heads, lanes and tokens:
what a history holds.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from leadline.errors import RecordError
from leadline.record.file import tables
from leadline.record.file.faults import READING_ERRORS, cannot_read
from leadline.record.file.store import open_to_follow
from leadline.record.provenance import decode
from leadline.record.rows.step_line import group_by_site

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leadline.record.rows.finding import Finding
    from leadline.record.rows.quantity import Quantity
    from leadline.record.rows.step_line import StepLine

__all__ = ["FollowedFile", "Look"]

PORTION = 20_000
"""So many rows are read at once: about 30 ms, while a writer waits."""
TIMEOUT = 0.5
"""Seconds that a look waits for a writer in the middle of a transaction."""
PATIENCE = 3
"""So many looks in a row may find a file that cannot be read before it counts as damaged: a copy of
a file that is written on another machine may be torn."""

Look = Literal["missing", "starting", "busy", "read"]
"""What a look came to: there is no file, it holds no record yet, it was locked, it was read."""


class FollowedFile:
    """A record file and what has been read of it.

    `closed` says that its writer has closed it. `fresh` holds what the last look read, and `again`
    that it found another file than the one before, so that older readings mean nothing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.quantities: dict[str, Quantity] = {}
        self.provenance: dict[str, Any] = {}
        self.findings: list[Finding] = []
        self.fresh: list[StepLine] = []
        self.closed = False
        self.again = False
        self._last_row = 0
        self._file: tuple[int, int] | None = None
        self._failures = 0

    def look(self) -> Look:
        """Read what is new; what could not be read now is read by a later look."""
        self.fresh, self.again = [], False
        identity = self._identity()
        if identity is None:
            return "missing"
        if identity != self._file:
            self._begin_again(identity)
        try:
            if self.path.stat().st_size == 0:
                return "starting"
            with closing(open_to_follow(self.path, timeout=TIMEOUT)) as connection:
                seen: Look = self._read(connection)
        except FileNotFoundError:
            return "missing"
        except (RecordError, *READING_ERRORS) as error:
            return self._refuse_damaged(error)
        self._failures = 0
        return seen

    def _identity(self) -> tuple[int, int] | None:
        try:
            facts = self.path.stat()
        except FileNotFoundError:
            return None
        return facts.st_dev, facts.st_ino

    def _begin_again(self, identity: tuple[int, int]) -> None:
        self.again = self._file is not None
        self._file = identity
        self._last_row = 0

    def _read(self, connection: sqlite3.Connection) -> Look:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        if "reading" not in names:
            return "starting"
        (last,) = connection.execute("SELECT max(rowid) FROM reading").fetchone()
        last = last or 0
        if last < self._last_row:  # the same file, written from the beginning
            self.again, self._last_row = True, 0
        # Definitions come before the rows that need them.
        self.quantities = tables.read_quantities(connection)
        rows: list[tuple[Any, ...]] = []
        try:
            while self._last_row < last:
                until = min(self._last_row + PORTION, last)
                rows += tables.read_step_rows(connection, self._last_row, until)
                self._last_row = until
        finally:  # what was read before a writer came in the way is not read again
            self.fresh = group_by_site(rows)
        self.provenance = {
            key: decode(text) for key, text in tables.read_provenance(connection).items()
        }
        self.findings = tables.read_findings(connection)
        self.closed = "checksum" in names and _is_sealed(connection)
        return "read"

    def _refuse_damaged(self, error: Exception) -> Look:
        """Say that the file is busy; raise the error where it is of another kind."""
        if _is_busy(error):
            return "busy"
        if isinstance(error, RecordError) and not isinstance(error.__cause__, READING_ERRORS):
            raise error  # no record, or of a newer program
        self._failures += 1
        if self._failures < PATIENCE:
            return "busy"
        if isinstance(error, RecordError):
            raise error
        raise cannot_read(self.path, error) from error


def _is_sealed(connection: sqlite3.Connection) -> bool:
    parts: Mapping[str, object] = dict(connection.execute("SELECT part, 1 FROM checksum"))
    return "unclosed" not in parts


def _is_busy(error: Exception) -> bool:
    """Whether a writer was in the way."""
    for one in (error, error.__cause__):
        code = getattr(one, "sqlite_errorcode", None)
        if isinstance(code, int) and code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return True
    return False
