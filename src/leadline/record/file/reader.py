"""Reads the tables of a record, and keeps what cannot change meanwhile.

A finished file is read once: its rows come in one query and stay in memory, and so do definitions,
provenance and findings. A record that this process alone writes forgets them when it writes. A file
that another process may be writing is asked, by SQLite's counter of foreign changes, whether they
still hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from leadline.record.file import tables
from leadline.record.file.schema import READING_COLUMNS

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping

    from leadline.record.file.tables import RecordRow
    from leadline.record.rows.finding import Finding
    from leadline.record.rows.quantity import Quantity
    from leadline.record.rows.reading import Reading

__all__ = ["Reader"]

MOST_ROWS_KEPT = 250_000
"""Larger files are read quantity by quantity: a million rows take about 0.5 GB as Python objects."""

_Kept = TypeVar("_Kept")
_QUANTITY = READING_COLUMNS.index("quantity")


class Reader:
    """The tables of one connection. `shared`: another process may write to the file."""

    def __init__(self, connection: sqlite3.Connection, *, shared: bool) -> None:
        self._connection = connection
        self._shared = shared
        self._version: int | None = None
        self._kept: dict[object, Any] = {}

    def forget(self) -> None:
        """Forget what was read, because the record has changed."""
        self._kept.clear()

    def keep(self, key: object, make: Callable[[], _Kept]) -> _Kept:
        """Return what `make` makes, made once for as long as the record stays as it is."""
        if self._shared:
            version = int(self._connection.execute("PRAGMA data_version").fetchone()[0])
            if version != self._version:
                self.forget()
                self._version = version
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def provenance(self) -> dict[str, Any]:
        """The provenance by key."""
        return dict(self.keep("provenance", lambda: tables.read_provenance(self._connection)))

    def quantities(self) -> dict[str, Quantity]:
        """The definitions by name."""
        return dict(self.keep("quantities", lambda: tables.read_quantities(self._connection)))

    def findings(self) -> list[Finding]:
        """The findings, the worst first."""
        return list(self.keep("findings", lambda: tables.read_findings(self._connection)))

    def distinct(self, column: str) -> list[str]:
        """The different values of a column, in the order in which they came."""
        return list(
            self.keep(("distinct", column), lambda: tables.distinct(self._connection, column))
        )

    def count(self) -> int:
        """The number of readings."""
        return self.keep("count", lambda: tables.count_readings(self._connection))

    def last_layer(self, stack: str) -> int:
        """The largest layer that a reading of this stack has."""
        return self.keep(("depth", stack), lambda: tables.last_layer(self._connection, stack))

    def readings(self, conditions: Mapping[str, object]) -> list[Reading]:
        """The readings whose columns have these values, in the order in which they came."""
        rows = self._rows_of(conditions.get("quantity"))
        if rows is None:
            rows = tables.read_rows(self._connection, conditions)
        else:
            wanted = [
                (READING_COLUMNS.index(column), value)
                for column, value in conditions.items()
                if column != "quantity"
            ]
            if wanted:
                rows = [row for row in rows if all(row[at] == value for at, value in wanted)]
        return tables.as_readings(self._connection, rows)

    def readings_of_lines(self, conditions: Mapping[str, object]) -> list[Reading]:
        """The readings that lines over depth are made of; all that match, where there are few.

        Of many, SQLite picks the run and the step that are drawn and, where every place of the model
        has a summary beside its heads, tokens, lanes, ranks and examples, the summaries alone.
        """
        if self.count() <= MOST_ROWS_KEPT:
            return self.readings(conditions)
        drawn = tables.drawn_conditions(self._connection, conditions)
        return tables.as_readings(self._connection, tables.read_rows(self._connection, drawn))

    def _rows_of(self, quantity: object) -> list[RecordRow] | None:
        """The rows of a quantity from memory; None where they must be asked for."""
        if quantity is None or self.count() > MOST_ROWS_KEPT:
            return None
        by_quantity = self.keep("rows", self._by_quantity)
        return by_quantity.get(quantity, [])

    def _by_quantity(self) -> dict[object, list[RecordRow]]:
        groups: dict[object, list[RecordRow]] = {}
        for row in tables.read_rows(self._connection, {}):
            groups.setdefault(row[_QUANTITY], []).append(row)
        return groups
