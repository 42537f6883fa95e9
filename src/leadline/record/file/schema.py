"""The tables of a record file, as SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

__all__ = ["APPLICATION_ID", "CHECKSUM_TABLE", "READING_COLUMNS", "SCHEMA", "write_schema"]

SCHEMA = 1
APPLICATION_ID = 0x4C45_4144  # "LEAD" in ASCII

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

# Never without a row: an empty table is what damage leaves, too.
CHECKSUM_TABLE = """
CREATE TABLE checksum (
    part TEXT NOT NULL,
    digest BLOB NOT NULL
);
INSERT INTO checksum VALUES ('unclosed', x'');
"""


def write_schema(connection: sqlite3.Connection) -> None:
    """Make an empty file a record without a row, which says that it is being written."""
    connection.executescript(
        f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA};"
        f"BEGIN; {CHECKSUM_TABLE} {_TABLES} COMMIT;"
    )
