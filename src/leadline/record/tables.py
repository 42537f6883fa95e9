"""What the tables of a record file hold, as objects: definitions, provenance, findings, readings."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from leadline.record import provenance
from leadline.record.finding import Finding
from leadline.record.quantity import Quantity
from leadline.record.reading import Reading
from leadline.record.site import Site
from leadline.record.store import READING_COLUMNS

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping

__all__ = [
    "add_finding",
    "add_quantity",
    "add_readings",
    "distinct",
    "read_findings",
    "read_provenance",
    "read_quantities",
    "read_readings",
    "read_rows",
    "remove_provenance",
    "set_provenance",
]

Row = tuple[Any, ...]

_QUANTITY_FIELDS = tuple(field.name for field in dataclasses.fields(Quantity))
_SITE_FIELDS = tuple(field.name for field in dataclasses.fields(Site))
_FINDING_FIELDS = ("verdict", "quantity", "severity", *_SITE_FIELDS)


def _insert(table: str, columns: tuple[str, ...]) -> str:
    marks = ", ".join("?" for _ in columns)
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608


def add_quantity(connection: sqlite3.Connection, quantity: Quantity) -> None:
    """Write one definition."""
    row = tuple(getattr(quantity, field) for field in _QUANTITY_FIELDS)
    connection.execute(_insert("quantity", _QUANTITY_FIELDS), row)


def read_quantities(connection: sqlite3.Connection) -> dict[str, Quantity]:
    """Read the definitions by name, in the order they were written."""
    columns = ", ".join(_QUANTITY_FIELDS)
    rows = connection.execute(f"SELECT {columns} FROM quantity ORDER BY rowid")  # noqa: S608
    return {row[0]: Quantity(*row) for row in rows}


def set_provenance(connection: sqlite3.Connection, key: str, value: object) -> None:
    """Write one entry of the provenance; a later one under the same key stands."""
    connection.execute(
        "INSERT INTO provenance (key, json) VALUES (?, ?) "
        "ON CONFLICT (key) DO UPDATE SET json = excluded.json",
        (key, provenance.encode(key, value)),
    )


def remove_provenance(connection: sqlite3.Connection, key: str) -> None:
    """Take one entry out of the provenance."""
    connection.execute("DELETE FROM provenance WHERE key = ?", (key,))


def read_provenance(connection: sqlite3.Connection) -> dict[str, Any]:
    """Read the provenance by key, in the order the keys were first written."""
    rows = connection.execute("SELECT key, json FROM provenance ORDER BY rowid")
    return {key: provenance.decode(text) for key, text in rows}


def add_finding(connection: sqlite3.Connection, finding: Finding) -> None:
    """Write one finding."""
    address: Row = (None,) * len(_SITE_FIELDS)
    if finding.site is not None:
        address = tuple(getattr(finding.site, field) for field in _SITE_FIELDS)
    row = (finding.verdict, finding.quantity, finding.severity, *address)
    connection.execute(_insert("finding", _FINDING_FIELDS), row)


def read_findings(connection: sqlite3.Connection) -> list[Finding]:
    """Read the findings, worst first: whoever shows them shows the answer first."""
    columns = ", ".join(_FINDING_FIELDS)
    rows = connection.execute(
        f"SELECT {columns} FROM finding ORDER BY severity != 'serious', rowid"  # noqa: S608
    )
    return [
        Finding(verdict, quantity, None if site[0] is None else Site(*site), severity)
        for verdict, quantity, severity, *site in rows
    ]


def add_readings(connection: sqlite3.Connection, readings: Iterable[Reading]) -> None:
    """Write readings."""
    rows = (_as_row(reading) for reading in readings)
    connection.executemany(_insert("reading", READING_COLUMNS), rows)


def read_rows(connection: sqlite3.Connection, conditions: Mapping[str, object]) -> list[Row]:
    """Read the rows whose columns have these values, in the order they were written.

    The condition None asks for rows without a value in that column.
    """
    where = " AND ".join(f"{column} IS ?" for column in conditions) or "1"
    columns = ", ".join(READING_COLUMNS)
    query = f"SELECT {columns} FROM reading WHERE {where} ORDER BY rowid"  # noqa: S608
    return connection.execute(query, tuple(conditions.values())).fetchall()


def read_readings(
    connection: sqlite3.Connection, conditions: Mapping[str, object]
) -> list[Reading]:
    """Read the same rows as readings; a missing value is NaN."""
    return [_as_reading(row) for row in read_rows(connection, conditions)]


def distinct(connection: sqlite3.Connection, column: str) -> list[str]:
    """Read the different values of a column of the readings, in the order they came."""
    query = f"SELECT {column} FROM reading GROUP BY {column} ORDER BY min(rowid)"  # noqa: S608
    return [row[0] for row in connection.execute(query)]


def _as_row(reading: Reading) -> Row:
    # Numbers of numpy and torch become Python's own; SQLite would keep them as raw bytes.
    site = reading.site
    return (
        reading.run,
        int(reading.step),
        _integer(reading.seed),
        reading.quantity,
        reading.statistic,
        site.stack,
        int(site.layer),
        _integer(site.sublayer),
        site.point,
        _integer(site.lane),
        _integer(site.head),
        _integer(site.token),
        _integer(site.rank),
        float(reading.value),
        None if reading.lower is None else float(reading.lower),
        None if reading.upper is None else float(reading.upper),
    )


def _as_reading(row: Row) -> Reading:
    run, step, seed, quantity, statistic, *address, value, lower, upper = row
    return Reading(
        quantity,
        Site(*address),
        statistic,
        math.nan if value is None else value,
        lower,
        upper,
        run,
        step,
        seed,
    )


def _integer(number: int | None) -> int | None:
    return None if number is None else int(number)
