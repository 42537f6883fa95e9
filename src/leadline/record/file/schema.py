"""The tables of a record file, as SQL.

The tables are those of schema 1, brought up to date by the migrations: a new file and a migrated
one have the same columns in the same order, and no table is written down twice.
"""

from __future__ import annotations

import functools
import sqlite3
from contextlib import closing

from leadline.record.file.migrations import FIRST_SCHEMA, migrate

__all__ = ["APPLICATION_ID", "CHECKSUM_TABLE", "READING_COLUMNS", "SCHEMA", "write_schema"]

SCHEMA = 2
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
    "example",
    "hops",
    "value",
    "lower",
    "upper",
    "exponent",
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
_UNCLOSED_ROW = "INSERT INTO checksum VALUES ('unclosed', x'');"
CHECKSUM_TABLE = f"""
CREATE TABLE checksum (
    part TEXT NOT NULL,
    digest BLOB NOT NULL
);
{_UNCLOSED_ROW}
"""


def write_schema(connection: sqlite3.Connection, *, schema: int = SCHEMA) -> None:
    """Make an empty file a record without a row, which says that it is being written."""
    # One transaction: whoever opens the file meanwhile finds it empty, or of this schema.
    connection.executescript(
        f"BEGIN IMMEDIATE; {_layout(schema)}; {_UNCLOSED_ROW}"
        f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {schema}; COMMIT;"
    )


@functools.cache
def _layout(schema: int) -> str:
    """The tables of a schema as SQLite writes them down, which is ten times as fast to repeat."""
    with closing(sqlite3.connect(":memory:")) as model:
        model.executescript(f"{CHECKSUM_TABLE} {_TABLES} PRAGMA user_version = {FIRST_SCHEMA};")
        migrate(model, schema)
        query = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid"
        return ";".join(sql for (sql,) in model.execute(query))
