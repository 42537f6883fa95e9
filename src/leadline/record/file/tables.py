"""What the tables of a record file hold, as objects: definitions, provenance, findings, readings."""

from __future__ import annotations

import dataclasses
import functools
import math
import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast, get_args

from leadline.record import provenance
from leadline.record.file.faults import READING_ERRORS, cannot_read, damaged
from leadline.record.file.schema import READING_COLUMNS
from leadline.record.rows.finding import Finding, Severity
from leadline.record.rows.quantity import (
    Axis,
    AxisScale,
    Better,
    LivesOn,
    Quantity,
    Requirement,
)
from leadline.record.rows.reading import Reading
from leadline.record.rows.site import Site

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "SUMMED_AXES",
    "add_finding",
    "add_quantity",
    "add_readings",
    "as_readings",
    "count_readings",
    "distinct",
    "drawn_conditions",
    "last_layer",
    "read_findings",
    "read_provenance",
    "read_quantities",
    "read_rows",
    "remove_provenance",
    "set_provenance",
]

RecordRow = tuple[Any, ...]
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_Reader = Callable[Concatenate[sqlite3.Connection, _Arguments], _Result]

_QUANTITY_FIELDS = tuple(field.name for field in dataclasses.fields(Quantity))
_SITE_FIELDS = tuple(field.name for field in dataclasses.fields(Site))
_FINDING_FIELDS = ("verdict", "quantity", "severity", "code", "name", "details", *_SITE_FIELDS)
_SEVERITIES: tuple[Severity, ...] = ("serious", "warning", "note")
"""The worst first: whoever shows findings shows the answer first."""
SUMMED_AXES = ("lane", "head", "token", "rank", "example")
"""The axes along which a quantity has numbers beside its summary."""
_PLACE = ("statistic", "stack", "point", "coalesce(sublayer, -1)", "layer", "coalesce(hops, -1)")
_LISTS = {"axes": ",", "requires": ","}
"""Columns that hold several words, and what stands between them."""


def _reader(read: _Reader[_Arguments, _Result]) -> _Reader[_Arguments, _Result]:
    """Let a function that reads a table say in a sentence that the file cannot be read.

    The checksums of a closed file have been checked when it was opened. Others may hold anything,
    and a disk may fail at any moment.
    """

    @functools.wraps(read)
    def checked(
        connection: sqlite3.Connection, *arguments: _Arguments.args, **options: _Arguments.kwargs
    ) -> _Result:
        try:
            return read(connection, *arguments, **options)
        except READING_ERRORS as error:
            raise cannot_read(_path_of(connection), error) from error
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise damaged(_path_of(connection), str(error)) from error

    return checked


def _path_of(connection: sqlite3.Connection) -> str:
    try:
        return connection.execute("PRAGMA database_list").fetchone()[2] or "in memory"
    except sqlite3.Error:
        return "that is open"


def _insert(table: str, columns: tuple[str, ...]) -> str:
    marks = ", ".join("?" for _ in columns)
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608


def add_quantity(connection: sqlite3.Connection, quantity: Quantity) -> None:
    """Write one definition."""
    row = tuple(_as_column(field, getattr(quantity, field)) for field in _QUANTITY_FIELDS)
    connection.execute(_insert("quantity", _QUANTITY_FIELDS), row)


def _as_column(field: str, value: object) -> object:
    if field in _LISTS:
        return _LISTS[field].join(cast("tuple[str, ...]", value))
    return int(value) if isinstance(value, bool) else value


def _as_quantity(row: RecordRow) -> Quantity:
    values = dict(zip(_QUANTITY_FIELDS, row, strict=True))
    for field, mark in _LISTS.items():
        values[field] = tuple(values[field].split(mark)) if values[field] else ()
    values["leads"] = bool(values["leads"])
    quantity = Quantity(**values)
    _refuse_unknown(quantity.lives_on, get_args(LivesOn))
    _refuse_unknown(quantity.scale, get_args(AxisScale))
    _refuse_unknown(quantity.better, get_args(Better))
    for axis in quantity.axes:
        _refuse_unknown(axis, get_args(Axis))
    for requirement in quantity.requires:
        _refuse_unknown(requirement, get_args(Requirement))
    return quantity


@_reader
def read_quantities(connection: sqlite3.Connection) -> dict[str, Quantity]:
    """Read the definitions by name, in the order they were written."""
    columns = ", ".join(_QUANTITY_FIELDS)
    rows = connection.execute(f"SELECT {columns} FROM quantity ORDER BY rowid")  # noqa: S608
    return {row[0]: _as_quantity(row) for row in rows}


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


@_reader
def read_provenance(connection: sqlite3.Connection) -> dict[str, Any]:
    """Read the provenance by key, in the order the keys were first written."""
    rows = connection.execute("SELECT key, json FROM provenance ORDER BY rowid")
    return {key: provenance.decode(text) for key, text in rows}


def add_finding(connection: sqlite3.Connection, finding: Finding) -> None:
    """Write one finding."""
    address: RecordRow = (None,) * len(_SITE_FIELDS)
    if finding.site is not None:
        address = tuple(getattr(finding.site, field) for field in _SITE_FIELDS)
    details = provenance.encode("details of a finding", finding.details)
    texts = (finding.verdict, finding.quantity, finding.severity, finding.code, finding.name)
    row = (*texts, details, *address)
    connection.execute(_insert("finding", _FINDING_FIELDS), row)


@_reader
def read_findings(connection: sqlite3.Connection) -> list[Finding]:
    """Read the findings, the worst first, each kind in the order in which it was added."""
    columns = ", ".join(_FINDING_FIELDS)
    findings: list[Finding] = []
    for row in connection.execute(f"SELECT {columns} FROM finding ORDER BY rowid"):  # noqa: S608
        verdict, quantity, severity, code, name, details, *address = row
        _refuse_unknown(severity, _SEVERITIES)
        site = None if address[0] is None else Site(*address)
        known = provenance.decode(details)
        findings.append(Finding(verdict, quantity, site, severity, code, name, known))
    return sorted(findings, key=lambda finding: _SEVERITIES.index(finding.severity))


def add_readings(connection: sqlite3.Connection, readings: Iterable[Reading]) -> None:
    """Write readings."""
    rows = (_as_row(reading) for reading in readings)
    connection.executemany(_insert("reading", READING_COLUMNS), rows)


@_reader
def read_rows(connection: sqlite3.Connection, conditions: Mapping[str, object]) -> list[RecordRow]:
    """Read the rows whose columns have these values, in the order they were written.

    The condition None asks for rows without a value in that column.
    """
    where = " AND ".join(f"{column} IS ?" for column in conditions) or "1"
    columns = ", ".join(READING_COLUMNS)
    query = f"SELECT {columns} FROM reading WHERE {where} ORDER BY rowid"  # noqa: S608
    return connection.execute(query, tuple(conditions.values())).fetchall()


@_reader
def drawn_conditions(
    connection: sqlite3.Connection, conditions: Mapping[str, object]
) -> dict[str, object]:
    """Add to the conditions the run, the step and the summaries that a line is drawn from."""
    drawn = dict(conditions)

    def one(expression: str, ending: str = "") -> Any:
        where = " AND ".join(f"{column} IS ?" for column in drawn) or "1"
        query = f"SELECT {expression} FROM reading WHERE {where} {ending}"  # noqa: S608
        return (connection.execute(query, tuple(drawn.values())).fetchone() or (None,))[0]

    if "run" not in drawn:
        drawn["run"] = one("run", "ORDER BY rowid LIMIT 1")
    if "step" not in drawn:
        drawn["step"] = one("max(step)")
    place = " || char(31) || ".join(_PLACE)  # a sign between units, which no name has
    is_summary = " AND ".join(f"{axis} IS NULL" for axis in SUMMED_AXES)
    summed = f"CASE WHEN {is_summary} THEN {place} END"
    if one(f"count(DISTINCT {place})") == one(f"count(DISTINCT {summed})"):
        drawn |= dict.fromkeys(SUMMED_AXES)
    return drawn


@_reader
def as_readings(_connection: sqlite3.Connection, rows: Iterable[RecordRow]) -> list[Reading]:
    """Make rows readings; a missing value is NaN."""
    return [_as_reading(row) for row in rows]


@_reader
def distinct(connection: sqlite3.Connection, column: str) -> list[str]:
    """Read the different values of a column of the readings, in the order they came."""
    query = f"SELECT {column} FROM reading GROUP BY {column} ORDER BY min(rowid)"  # noqa: S608
    return [row[0] for row in connection.execute(query)]


@_reader
def count_readings(connection: sqlite3.Connection) -> int:
    """Count the readings."""
    return int(connection.execute("SELECT count(*) FROM reading").fetchone()[0])


@_reader
def last_layer(connection: sqlite3.Connection, stack: str) -> int:
    """The largest layer that a reading of this stack has."""
    query = "SELECT max(layer) FROM reading WHERE stack = ?"
    return int(connection.execute(query, (stack,)).fetchone()[0])


def _refuse_unknown(word: str, known: tuple[str, ...]) -> None:
    if word not in known:
        raise ValueError(f"{word!r} stands where one of {', '.join(known)} belongs")


def _as_row(reading: Reading) -> RecordRow:
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
        _integer(site.example),
        _integer(site.hops),
        float(reading.value),
        None if reading.lower is None else float(reading.lower),
        None if reading.upper is None else float(reading.upper),
        None if reading.exponent is None else str(int(reading.exponent)),
    )


def _as_reading(row: RecordRow) -> Reading:
    run, step, seed, quantity, statistic, *address, value, lower, upper, exponent = row
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
        None if exponent is None else int(exponent),
    )


def _integer(number: int | None) -> int | None:
    return None if number is None else int(number)
