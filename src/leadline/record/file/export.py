"""A record in the forms of other libraries. All of them hold the same rows.

Columns are those of the record file. A value that is not a number is NaN in every form; a seed,
sublayer, head, bound or exponent that a row does not have is missing (empty in CSV). An exponent is
a text, because it may be larger than any number type of these libraries.
"""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from leadline.errors import require
from leadline.record.file.schema import READING_COLUMNS
from leadline.record.file.text_files import write_text_file
from leadline.record.rows.reading import scaled

if TYPE_CHECKING:
    from pathlib import Path

    from leadline.record.record import Record
    from leadline.record.rows.reading import Reading

__all__ = ["columns_of", "to_arrow", "to_csv", "to_pandas", "to_xarray"]

_TEXT = ("run", "quantity", "statistic", "stack", "point", "exponent")
_ALWAYS = ("step", "layer")
_REAL = ("value", "lower", "upper")
# What a row of an xarray dimension is called where a reading has no such number.
_ABSENT = -1


def columns_of(record: Record) -> dict[str, list[Any]]:
    """Return the rows as one list per column, in the order they were appended."""
    rows = [_cells(reading) for reading in record.select()]
    return {name: [row[at] for row in rows] for at, name in enumerate(READING_COLUMNS)}


def to_pandas(record: Record) -> Any:
    """Return all rows as a DataFrame; missing whole numbers make the column `Int64`."""
    pandas = require("pandas", extra="table")
    series: dict[str, Any] = {}
    for name, column in columns_of(record).items():
        series[name] = pandas.Series(column, dtype=_pandas_type(name))
    return pandas.DataFrame(series)


def to_arrow(record: Record) -> Any:
    """Return all rows as an Arrow table."""
    arrow = require("pyarrow", extra="table")
    types = {
        name: arrow.string()
        if name in _TEXT
        else arrow.float64()
        if name in _REAL
        else arrow.int64()
        for name in READING_COLUMNS
    }
    columns = columns_of(record)
    arrays = [arrow.array(columns[name], type=types[name]) for name in READING_COLUMNS]
    return arrow.table(arrays, names=list(READING_COLUMNS))


def to_xarray(record: Record) -> Any:
    """Return a Dataset with one variable per quantity.

    Its dimensions are statistic, layer, and those columns in which the quantity has more than one
    value (stack, point, sublayer, run, step, seed, ...); a number of a training run has only the
    latter. A site that is not a sublayer has sublayer -1. Bounds become `NAME.lower` and
    `NAME.upper` where there are any, numbers with an exponent `NAME.log10` too. Of two readings of
    the same cell the later one stands.
    """
    xarray = require("xarray", extra="table")
    variables: dict[str, Any] = {}
    for name, quantity in record.quantities.items():
        readings = record.select(name)
        if not readings:
            continue
        cells = [dict(zip(READING_COLUMNS, _cells(reading), strict=True)) for reading in readings]
        fields = [("", "value"), (".lower", "lower"), (".upper", "upper")]
        if any(reading.exponent is not None for reading in readings):
            # What is beyond float64 is zero or infinite as a number, and exact as a logarithm.
            for cell, reading in zip(cells, readings, strict=True):
                cell |= {name: _scaled(cell[name], reading.exponent or 0) for name in _REAL}
                cell["log10"] = reading.log10
            fields.append((".log10", "log10"))
        always = () if quantity.lives_on == "run" else ("statistic", "layer")
        attributes = {"title": quantity.title, "formula": quantity.formula, "unit": quantity.unit}
        for suffix, field in fields:
            if field == "value" or any(cell[field] is not None for cell in cells):
                dimensions, coordinates, values = _cube(cells, field, always=always)
                variables[f"{name}{suffix}"] = xarray.DataArray(
                    values, dims=dimensions, coords=coordinates, attrs=attributes
                )
    provenance = json.dumps(record.provenance, ensure_ascii=False)
    return xarray.Dataset(variables, attrs={"provenance": provenance})


def to_csv(record: Record, path: Path) -> None:
    """Write all rows to a CSV file in one step."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(READING_COLUMNS)
    writer.writerows(_cells(reading) for reading in record.select())
    write_text_file(path, text.getvalue(), problem=f"Cannot write the table {path}")


def _pandas_type(column: str) -> str:
    if column == "exponent":
        return "object"
    if column in _TEXT:
        return "str"
    if column in _REAL:
        return "float64"
    return "int64" if column in _ALWAYS else "Int64"


def _cells(reading: Reading) -> tuple[Any, ...]:
    site = reading.site
    return (
        reading.run,
        reading.step,
        reading.seed,
        reading.quantity,
        reading.statistic,
        site.stack,
        site.layer,
        site.sublayer,
        site.point,
        site.lane,
        site.head,
        site.token,
        site.rank,
        site.example,
        site.hops,
        reading.value,
        reading.lower,
        reading.upper,
        None if reading.exponent is None else str(reading.exponent),
    )


def _scaled(value: float | None, exponent: int) -> float | None:
    return None if value is None else scaled(value, exponent)


def _is_redundant(cells: list[dict[str, Any]]) -> bool:
    """Whether no two writes differ in `sublayer` alone, so that this dimension can be left out."""
    numbers = (*_REAL, "exponent")
    address = [name for name in READING_COLUMNS if name != "sublayer" and name not in numbers]
    number: dict[tuple[Any, ...], int | None] = {}
    return all(
        number.setdefault(tuple(cell[name] for name in address), cell["sublayer"])
        == cell["sublayer"]
        for cell in cells
    )


def _cube(
    cells: list[dict[str, Any]], field: str, *, always: tuple[str, ...]
) -> tuple[list[str], dict[str, list[Any]], np.ndarray]:
    """Spread the cells over the dimensions they use, and over those that are always there."""
    dimensions: list[str] = []
    coordinates: dict[str, list[Any]] = {}
    for name in READING_COLUMNS:
        if name in ("quantity", "exponent", *_REAL):
            continue
        if name == "sublayer" and _is_redundant(cells):
            continue
        labels = dict.fromkeys(_ABSENT if cell[name] is None else cell[name] for cell in cells)
        if len(labels) > 1 or name in always:
            dimensions.append(name)
            coordinates[name] = list(labels) if name in _TEXT else sorted(labels)
    places = {
        name: {value: at for at, value in enumerate(coordinates[name])} for name in dimensions
    }
    values = np.full([len(coordinates[name]) for name in dimensions], np.nan)
    for cell in cells:
        if cell[field] is not None:
            at = tuple(
                places[name][_ABSENT if cell[name] is None else cell[name]] for name in dimensions
            )
            values[at] = cell[field]
    return dimensions, coordinates, values
