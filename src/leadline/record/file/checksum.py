"""The checksums of a record file: written when it is closed, checked when it is opened.

The table `checksum` of a closed file holds a digest of every table (its rows in order), of the
layout of the tables, and of the bytes of the file. While a file is being written it holds the one
row `unclosed`: such a file, and one from before there were checksums, is only examined for what no
record can hold.

Opening compares the digest of the bytes, which costs one reading of the file. Where they differ
the tables are digested one by one, to say which of them is lost. A file that some program merely
laid out anew (`VACUUM`, another journal mode) passes there: its tables are what was written.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from leadline.errors import RecordError, join_words
from leadline.record.file.faults import READING_ERRORS, cannot_read, changed, damaged, one_line
from leadline.record.file.schema import CHECKSUM_TABLE, SCHEMA, write_schema

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

__all__ = [
    "Integrity",
    "check_file",
    "keep_unclosed",
    "mark_unclosed",
    "seal_file",
    "seal_tables",
]

Integrity = Literal["checked", "unclosed", "without checksums"]
"""What is known about a file: it is what was written when it was closed; it was never closed, so
nobody can tell; it was written before there were checksums."""

_UNCLOSED: Mapping[str, bytes] = {"unclosed": b""}
_FILE, _LAYOUT = "file", "layout"
_TABLES = ("provenance", "quantity", "finding", "reading")
_WORDS = {
    _LAYOUT: "the layout of the tables",
    "provenance": "the provenance",
    "quantity": "the definitions",
    "finding": "the findings",
    "reading": "the readings",
}
_PARTS = {_FILE, *_WORDS}

_SIZE = 32
"""Bytes of a digest."""
_BLOCK = 4096
"""How many rows are digested at once. Part of the format: another number gives other digests."""
_CHUNK = 1 << 20
"""Bytes read at once while a file is digested."""
_COUNTERS = ((24, 28), (92, 100))
"""Where the header of an SQLite file counts commits, which the last one, the digest's own, changes."""


def mark_unclosed(connection: sqlite3.Connection) -> None:
    """Say in the file that it is being written; a file from before checksums gets their table."""
    if not _has_table(connection):
        connection.executescript(f"BEGIN; {CHECKSUM_TABLE} COMMIT;")
        return
    _write(connection, _UNCLOSED)


def keep_unclosed(connection: sqlite3.Connection) -> None:
    """Say again that the file is being written, where another process has closed it meanwhile."""
    if _read_checksums(connection) != _UNCLOSED:
        mark_unclosed(connection)


def seal_tables(connection: sqlite3.Connection) -> None:
    """Write the digests of the tables, and random bytes in place of that of the file."""
    digests = {part: _digest_of(connection, part) for part in _WORDS}
    _write(connection, {**digests, _FILE: os.urandom(_SIZE)})


def seal_file(connection: sqlite3.Connection, path: Path) -> None:
    """Put the digest of the file in the place that is kept for it; the file has no log any more."""
    query = "SELECT rowid, digest FROM checksum WHERE part = ?"
    row, placeholder = connection.execute(query, (_FILE,)).fetchone() or (0, None)
    if placeholder is None:
        return
    digest = _digest_of_file(path, _page(connection), placeholder)
    if digest is not None:
        # In place: an UPDATE may move the row, and the bytes of the file with it.
        with connection.blobopen("checksum", "digest", row) as place:
            place.write(digest)


def check_file(connection: sqlite3.Connection, path: Path, *, schema: int = SCHEMA) -> Integrity:
    """Say what is known about a file; one that is not what was written is refused.

    `schema` is the one that its tables should have.
    """
    checksums = _read_checksums(connection)
    if checksums == _UNCLOSED:
        _refuse_impossible(connection, path, schema)
        return "unclosed"
    if checksums is None:
        _refuse_unknown_tables(connection, path)
        _refuse_impossible(connection, path, schema)
        return "without checksums"
    file_digest = checksums.get(_FILE)
    # What stands in a log beside the file is read as if it stood in the file.
    logs = [Path(f"{path}-{ending}") for ending in ("wal", "journal")]
    if (
        isinstance(file_digest, bytes)
        and len(file_digest) == _SIZE
        and not any(log.exists() for log in logs)
    ):
        try:
            is_same = _digest_of_file(path, _page(connection), file_digest) == file_digest
        except OSError as error:
            raise cannot_read(path, error) from error
        if is_same:
            return "checked"
    try:
        _refuse_changed(connection, path, checksums)
    except RecordError:
        if _read_checksums(connection) == checksums:
            raise
        return check_file(
            connection, path, schema=schema
        )  # a writer has begun to add to it meanwhile
    return "checked"


def _refuse_changed(
    connection: sqlite3.Connection, path: Path, checksums: Mapping[Any, object]
) -> None:
    """Refuse a closed file of which a table is not what was written, and say which."""
    if set(checksums) != _PARTS:
        raise changed(path, "its checksums are lost, so nothing in it can be relied on")
    faults: dict[str, str] = {}
    for part, words in _WORDS.items():
        try:
            if _digest_of(connection, part) != checksums[part]:
                faults[part] = ""
        except READING_ERRORS as error:
            faults[part] = f" ({words} cannot be read: {one_line(str(error))})"
    structure = _structure(connection)
    if not faults and structure == "ok":
        return
    if not faults:
        raise changed(path, f"all tables are intact, an index or a free page is not ({structure})")
    intact = [part for part in _WORDS if part not in faults]
    mismatch = "does not match its checksum" if _is_one(faults) else "do not match their checksums"
    rest = f"{_listed(intact)} {'is' if _is_one(intact) else 'are'}" if intact else "nothing is"
    reason = next(filter(None, faults.values()), "")
    raise changed(path, f"{_listed(faults)} {mismatch}{reason}; {rest} intact")


def _refuse_impossible(connection: sqlite3.Connection, path: Path, schema: int) -> None:
    """Refuse a file without checksums that holds what no record can hold."""
    structure = _structure(connection)
    if structure != "ok":
        raise damaged(path, structure)
    with closing(sqlite3.connect(":memory:")) as model:
        write_schema(model, schema=schema)
        for table in _TABLES:
            columns = _columns(model, table)
            if _columns(connection, table) != columns:
                raise damaged(path, f"the table {table} has other columns")
            odd = " OR ".join(
                _odd_type(name, kind, needed) for _, name, kind, needed, *_ in columns
            )
            query = f"SELECT EXISTS (SELECT 1 FROM {table} WHERE {odd})"  # noqa: S608
            if connection.execute(query).fetchone() != (0,):
                raise damaged(path, f"{_WORDS[table]} hold values of another kind")
    undefined = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM reading WHERE quantity NOT IN (SELECT name FROM quantity))"
    ).fetchone()
    if undefined != (0,):
        raise damaged(path, "there are readings of a quantity that is not defined")


def _columns(connection: sqlite3.Connection, table: str) -> list[tuple[Any, ...]]:
    return connection.execute(f"PRAGMA table_info ({table})").fetchall()


def _odd_type(name: str, kind: str, needed: int) -> str:
    """The condition under which a value is not of the kind that its column is declared with."""
    also = "" if needed else ", 'null'"
    return f"typeof ({name}) NOT IN ('{kind.lower()}'{also})"


def _refuse_unknown_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file with a table that no record has: the checksums under a damaged name."""
    names = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    )
    unknown = sorted({str(name) for (name,) in names} - set(_TABLES))
    if unknown:
        raise damaged(path, f"it has a table that no record has, {unknown[0]!r}")


def _structure(connection: sqlite3.Connection) -> str:
    """What SQLite says about pages, order and indices of the file: `ok`, or the first fault."""
    try:
        return one_line(connection.execute("PRAGMA integrity_check (1)").fetchone()[0])
    except READING_ERRORS as error:
        return one_line(str(error))


def _has_table(connection: sqlite3.Connection) -> bool:
    query = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'checksum'"
    return connection.execute(query).fetchone() == (1,)


def _read_checksums(connection: sqlite3.Connection) -> dict[Any, object] | None:
    """Read the table of checksums; None where the file has none."""
    if not _has_table(connection):
        return None
    return dict(connection.execute("SELECT part, digest FROM checksum ORDER BY rowid"))


def _write(connection: sqlite3.Connection, parts: Mapping[str, bytes]) -> None:
    with connection:
        connection.execute("DELETE FROM checksum")
        connection.executemany("INSERT INTO checksum VALUES (?, ?)", parts.items())


def _digest_of(connection: sqlite3.Connection, part: str) -> bytes:
    if part == _LAYOUT:
        query = (
            "SELECT type, name, tbl_name, sql FROM sqlite_master "
            "WHERE tbl_name IN ('checksum', 'provenance', 'quantity', 'finding', 'reading') "
            "ORDER BY type, name"
        )
    else:
        # NOT INDEXED: an index may differ from its table, and the table is what is digested.
        query = f"SELECT * FROM {part} NOT INDEXED ORDER BY rowid"  # noqa: S608
    cursor = connection.execute(query)
    digest = hashlib.blake2b(digest_size=_SIZE)
    while rows := cursor.fetchmany(_BLOCK):
        digest.update(b"%d rows" % len(rows))
        for column in zip(*rows, strict=True):
            for piece in _packed(column):
                digest.update(piece)
    return digest.digest()


def _packed(column: Sequence[Any]) -> Iterable[bytes]:
    """The values of one column as bytes: a letter for their kind, then each of them exactly.

    Columns are packed as a whole, which is four times as fast as row by row.
    """
    missing = column.count(None)
    if missing == len(column):
        return (b"n",)
    marks = b""
    if missing:
        marks = bytes([value is None for value in column])
        column = [value for value in column if value is not None]
    first: object = column[0]
    try:
        if isinstance(first, float):
            return marks, b"f", struct.pack(f"<{len(column)}d", *column)
        if isinstance(first, int):
            return marks, b"i", struct.pack(f"<{len(column)}q", *column)
        text = "\0".join(column)
        if text.count("\0") == len(column) - 1:
            return marks, b"t", text.encode()
    except (struct.error, TypeError):
        pass  # several kinds in one column, which only damage brings about
    return marks, b"m", repr(column).encode()


def _page(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return where the page with the checksums begins, and its size; they fit on one page."""
    size = int(connection.execute("PRAGMA page_size").fetchone()[0])
    query = "SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = 'checksum'"
    return (int(connection.execute(query).fetchone()[0]) - 1) * size, size


def _digest_of_file(path: Path, page: tuple[int, int], file_digest: bytes) -> bytes | None:
    """Digest the bytes of a file, except for those of the digest itself.

    None where `file_digest`, the bytes in its place, is not on the page.
    """
    start, size = page
    digest = hashlib.blake2b(digest_size=_SIZE)
    with path.open("rb") as file:
        file.seek(max(start, 0))
        place = file.read(size).find(file_digest)
        if place < 0:
            return None
        file.seek(0)
        for begin, end in (*_COUNTERS, (start + place, start + place + len(file_digest))):
            _feed(digest, file, begin - file.tell())
            digest.update(bytes(end - begin))
            file.seek(end)
        _feed(digest, file, None)
    return digest.digest()


def _feed(digest: hashlib.blake2b, file: IO[bytes], count: int | None) -> None:
    """Digest `count` bytes of the file, or all that are left."""
    while count is None or count > 0:
        chunk = file.read(_CHUNK if count is None else min(count, _CHUNK))
        if not chunk:
            return
        digest.update(chunk)
        if count is not None:
            count -= len(chunk)


def _listed(parts: Iterable[str]) -> str:
    return join_words(_WORDS[part] for part in parts)


def _is_one(parts: Collection[str]) -> bool:
    """Whether the words for these parts need a verb in the singular."""
    return len(parts) == 1 and not {_LAYOUT, "provenance"}.isdisjoint(parts)
