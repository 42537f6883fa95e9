"""What the tables of a record file hold, as objects: definitions, provenance, findings, readings."""

from __future__ import annotations

import dataclasses
import functools
import math
import sqlite3
import sys
from collections.abc import Callable, Mapping
from operator import index
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast, get_args

import numpy as np

from leadline.errors import RecordError, check_text, shown
from leadline.record import provenance
from leadline.record.file.faults import READING_ERRORS, cannot_read, damaged
from leadline.record.file.schema import READING_COLUMNS
from leadline.record.rows.finding import SEVERITIES, Finding
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
from leadline.record.rows.step_line import STEP_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "add_finding",
    "add_quantity",
    "add_readings",
    "as_readings",
    "broken_quantities",
    "count_readings",
    "distinct",
    "foreign_changes",
    "last_layer",
    "last_steps",
    "read_findings",
    "read_places",
    "read_provenance",
    "read_quantities",
    "read_rows",
    "read_step_rows",
    "remove_provenance",
    "set_provenance",
]

RecordRow = tuple[Any, ...]
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_Reader = Callable[Concatenate[sqlite3.Connection, _Arguments], _Result]

_QUANTITY_FIELDS = tuple(field.name for field in dataclasses.fields(Quantity))
_TEXT_COLUMNS = [
    READING_COLUMNS.index(name) for name in ("run", "quantity", "statistic", "stack", "point")
]
_SITE_FIELDS = tuple(field.name for field in dataclasses.fields(Site))
_FINDING_FIELDS = ("verdict", "quantity", "severity", "code", "name", "details", *_SITE_FIELDS)
_SUMMED_AXES = ("lane", "head", "token", "rank", "example")
"""The axes along which a quantity has numbers beside its summary."""
_PLACE = ("run", "step", "quantity", "statistic", "stack", "point", "sublayer", "layer")
_SUMMARY = " AND ".join(f"{axis} IS NULL" for axis in _SUMMED_AXES)
_WORDS: dict[str, Any] = {
    "lives_on": LivesOn,
    "scale": AxisScale,
    "better": Better,
    "axes": Axis,
    "requires": Requirement,
}
"""The fields of a quantity that hold words of a list, and the lists."""
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
    """Write one definition; what no reader could read is refused."""
    name = shown(quantity.name)
    for field, value in ((field, getattr(quantity, field)) for field in _QUANTITY_FIELDS):
        if field in _LISTS and not _is_tuple_of_texts(value):
            raise RecordError(
                f"The {field} of the quantity {name} are {shown(value)}; give a tuple of names, "
                f"such as {field}=({get_args(_WORDS[field])[0]!r},)."
            )
        if field not in _LISTS and field != "leads":
            check_text(value, f"The {field} of the quantity {name}", error=RecordError)
    try:
        _check_words(quantity)
    except ValueError as error:
        raise RecordError(f"The quantity {name} cannot be kept: {error}.") from error
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
    _check_words(quantity)
    return quantity


def _check_words(quantity: Quantity) -> None:
    """Raise ValueError where a field holds a word that it cannot."""
    for field, kind in _WORDS.items():
        value = getattr(quantity, field)
        for word in value if field in _LISTS else (value,):
            _refuse_unknown(word, get_args(kind))


def _is_tuple_of_texts(value: object) -> bool:
    words = cast("tuple[object, ...]", value)
    return isinstance(value, tuple) and all(isinstance(word, str) for word in words)


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
def read_provenance(connection: sqlite3.Connection) -> dict[str, str]:
    """Read the provenance as JSON texts by key, in the order the keys were first written."""
    texts = dict(connection.execute("SELECT key, json FROM provenance ORDER BY rowid").fetchall())
    for text in texts.values():
        provenance.decode(text)  # refuses a text that is no JSON
    return texts


def add_finding(connection: sqlite3.Connection, finding: Finding) -> None:
    """Write one finding; what no reader could read is refused."""
    texts = (finding.verdict, finding.severity, finding.code, finding.name)
    for text in (*texts, finding.quantity or ""):
        check_text(text, "A text of a finding", error=RecordError)
    if finding.severity not in SEVERITIES:
        raise RecordError(
            f"The severity of a finding is {finding.severity!r}; give one of "
            f"{', '.join(SEVERITIES)}."
        )
    if not isinstance(finding.details, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RecordError(f"The details of a finding are {shown(finding.details)}; give a mapping.")
    address: RecordRow = (None,) * len(_SITE_FIELDS)
    if finding.site is not None:
        if not isinstance(finding.site, Site):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise RecordError(f"The site of a finding is {shown(finding.site)}; give a Site.")
        address = tuple(getattr(finding.site, field) for field in _SITE_FIELDS)
    details = provenance.encode("details of a finding", finding.details)
    verdict, severity, code, name = texts
    row = (verdict, finding.quantity, severity, code, name, details, *address)
    connection.execute(_insert("finding", _FINDING_FIELDS), row)


@_reader
def read_findings(connection: sqlite3.Connection) -> list[Finding]:
    """Read the findings, the worst first, each kind in the order in which it was added."""
    columns = ", ".join(_FINDING_FIELDS)
    findings: list[Finding] = []
    for row in connection.execute(f"SELECT {columns} FROM finding ORDER BY rowid"):  # noqa: S608
        verdict, quantity, severity, code, name, details, *address = row
        _refuse_unknown(severity, SEVERITIES)
        site = None if address[0] is None else Site(*address)
        known = provenance.decode(details)
        findings.append(Finding(verdict, quantity, site, severity, code, name, known))
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def add_readings(connection: sqlite3.Connection, readings: Iterable[Reading]) -> None:
    """Write readings; one that no file can hold is refused."""
    rows = (_as_row(reading) for reading in readings)
    try:
        connection.executemany(_insert("reading", READING_COLUMNS), rows)
    except (OverflowError, UnicodeEncodeError) as error:
        raise RecordError(
            f"A reading cannot be kept in a file: {error}. Whole numbers have at most 64 bits, and "
            "texts no lone surrogates."
        ) from error


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
def read_places(
    connection: sqlite3.Connection, conditions: Mapping[str, object]
) -> list[RecordRow] | None:
    """Read one row per place of a line, of the run and the step that are drawn.

    Its value is the mean of the summaries there, or of everything where there is no summary. The
    rows come in the order in which the places were first written. None where a place is more than
    its layer and its value more than a float: lines over hops, exponents beyond float64.
    """
    drawn = dict(conditions)

    def select(columns: str, ending: str = "") -> sqlite3.Cursor:
        where = " AND ".join(f"{column} IS ?" for column in drawn) or "1"
        query = f"SELECT {columns} FROM reading WHERE {where} {ending}"  # noqa: S608
        return connection.execute(query, tuple(drawn.values()))

    if "run" not in drawn:
        (drawn["run"],) = select("run", "ORDER BY rowid LIMIT 1").fetchone() or (None,)
    if "step" not in drawn:
        (drawn["step"],) = select("max(step)").fetchone()
    if select("count(exponent) + count(hops)").fetchone()[0]:
        return None
    # SQLite's own mean differs in the last bits from that of a file that is kept in memory.
    values: dict[RecordRow, tuple[list[float], list[float]]] = {}
    for *place, is_summary, value in select(
        f"{', '.join(_PLACE)}, {_SUMMARY}, value", "ORDER BY rowid"
    ):
        everything, summaries = values.setdefault(tuple(place), ([], []))
        (summaries if is_summary else everything).append(math.nan if value is None else value)
    return [
        _placed(place, float(np.mean(summaries or everything)))
        for place, (everything, summaries) in values.items()
    ]


def _placed(place: RecordRow, value: float) -> RecordRow:
    columns = {**dict(zip(_PLACE, place, strict=True)), "value": value}
    return tuple(columns.get(column) for column in READING_COLUMNS)


@_reader
def as_readings(_connection: sqlite3.Connection, rows: Iterable[RecordRow]) -> list[Reading]:
    """Make rows readings; a missing value is NaN."""
    return [_as_reading(row) for row in rows]


@_reader
def read_step_rows(
    connection: sqlite3.Connection, after: int = 0, until: int | None = None
) -> list[RecordRow]:
    """Read what lines over steps are made of: the headline statistics without heads and the like.

    Only rows behind number `after` are read, up to number `until`, in the order they were written.
    """
    end = "" if until is None else " AND rowid <= ?"
    summary = " AND ".join(f"{axis} IS NULL" for axis in _SUMMED_AXES)
    headline = "statistic = (SELECT headline FROM quantity WHERE name = reading.quantity)"
    query = (
        f"SELECT {', '.join(STEP_COLUMNS)} FROM reading NOT INDEXED WHERE rowid > ?{end} "  # noqa: S608
        f"AND {summary} AND {headline} ORDER BY rowid"
    )
    return connection.execute(query, (after,) if until is None else (after, until)).fetchall()


@_reader
def distinct(connection: sqlite3.Connection, column: str) -> list[str]:
    """Read the different values of a column of the readings, in the order they came."""
    query = f"SELECT {column} FROM reading GROUP BY {column} ORDER BY min(rowid)"  # noqa: S608
    return [row[0] for row in connection.execute(query)]


@_reader
def broken_quantities(connection: sqlite3.Connection) -> list[str]:
    """Read the names of the quantities that have a value which is NaN (kept as none) or infinite."""
    query = "SELECT DISTINCT quantity FROM reading WHERE value IS NULL OR abs(value) > ?"
    return [row[0] for row in connection.execute(query, (sys.float_info.max,))]


@_reader
def foreign_changes(connection: sqlite3.Connection) -> int:
    """Read SQLite's number for the state of the file: it changes when another connection writes."""
    return int(connection.execute("PRAGMA data_version").fetchone()[0])


@_reader
def count_readings(connection: sqlite3.Connection) -> int:
    """Count the readings."""
    return int(connection.execute("SELECT count(*) FROM reading").fetchone()[0])


@_reader
def last_layer(connection: sqlite3.Connection, stack: str) -> int:
    """The largest layer that a reading of this stack has."""
    query = "SELECT max(layer) FROM reading WHERE stack = ?"
    return int(connection.execute(query, (stack,)).fetchone()[0])


@_reader
def last_steps(connection: sqlite3.Connection) -> dict[str, int]:
    """The last step of every run."""
    return dict(connection.execute("SELECT run, max(step) FROM reading GROUP BY run"))


def _refuse_unknown(word: str, known: tuple[str, ...]) -> None:
    if word not in known:
        raise ValueError(f"{word!r} stands where one of {', '.join(known)} belongs")


def _as_row(reading: Reading) -> RecordRow:
    """Make a reading a row, of Python's own numbers: SQLite would keep those of numpy as bytes."""
    try:
        row = _converted(reading)
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        raise RecordError(
            f"A reading of {shown(reading.quantity)} cannot be kept: {error}."
        ) from error
    for at in _TEXT_COLUMNS:
        if not isinstance(row[at], str):
            raise RecordError(f"{READING_COLUMNS[at]} is {shown(row[at])}; give a text.")
    return row


def _converted(reading: Reading) -> RecordRow:
    site = reading.site
    return (
        reading.run,
        index(reading.step),
        _integer(reading.seed),
        reading.quantity,
        reading.statistic,
        site.stack,
        index(site.layer),
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
        None if reading.exponent is None else str(index(reading.exponent)),
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
    return None if number is None else index(number)
