"""Reads the tables of a record, and keeps what cannot change meanwhile.

A finished file is read once: its rows come in one query and stay in memory, and so do definitions,
provenance and findings. A record that is written forgets them when this process writes, and asks,
before every answer, SQLite's counter of foreign changes whether another one did. A finished file
asks only when it must be read anyway, so that rows and definitions are always of one state: what a
later writer adds to it is there for whoever opens it again.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from leadline.record.file import tables
from leadline.record.file.schema import READING_COLUMNS
from leadline.record.provenance import decode
from leadline.record.rows.step_line import group_by_site

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping

    from leadline.record.file.tables import RecordRow
    from leadline.record.rows.finding import Finding
    from leadline.record.rows.quantity import Quantity
    from leadline.record.rows.reading import Reading
    from leadline.record.rows.step_line import StepLine

__all__ = ["Reader"]

MOST_ROWS_KEPT = 250_000
"""Larger files are read quantity by quantity: a million rows take about 0.5 GB as Python objects."""

_Kept = TypeVar("_Kept")
_QUANTITY = READING_COLUMNS.index("quantity")


class Reader:
    """The tables of one connection. `growing`: the file was not closed when it was opened."""

    def __init__(self, connection: sqlite3.Connection, *, growing: bool) -> None:
        self._connection = connection
        self._growing = growing
        self._version: int | None = None
        self._kept: dict[object, Any] = {}

    def forget(self) -> None:
        """Forget what was read, because the record has changed."""
        self._kept.clear()

    def keep(self, key: object, make: Callable[[], _Kept]) -> _Kept:
        """Return what `make` makes, made once for as long as the record stays as it is."""
        if self._growing or key not in self._kept:
            self._forget_what_changed()
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def _forget_what_changed(self) -> None:
        version = tables.foreign_changes(self._connection)
        if version != self._version:
            self.forget()
            self._version = version

    def provenance(self) -> dict[str, Any]:
        """The provenance by key, a copy that is the caller's own."""
        return {key: decode(text) for key, text in self._texts().items()}

    def provenance_at(self, key: str) -> Any:
        """One entry of the provenance, None where it is not there; not to be changed."""
        text = self._texts().get(key)
        return None if text is None else self.keep(("provenance", key), lambda: decode(text))

    def _texts(self) -> dict[str, str]:
        return self.keep("provenance", lambda: tables.read_provenance(self._connection))

    def quantities(self) -> dict[str, Quantity]:
        """The definitions by name."""
        return dict(self.keep("quantities", lambda: tables.read_quantities(self._connection)))

    def findings(self) -> list[Finding]:
        """The findings, the worst first."""
        findings = self.keep("findings", lambda: tables.read_findings(self._connection))
        return [replace(finding, details=deepcopy(finding.details)) for finding in findings]

    def distinct(self, column: str) -> list[str]:
        """The different values of a column, in the order in which they came."""
        return list(
            self.keep(("distinct", column), lambda: tables.distinct(self._connection, column))
        )

    def count(self) -> int:
        """The number of readings."""
        return self.keep("count", lambda: tables.count_readings(self._connection))

    def broken_quantities(self) -> list[str]:
        """The quantities that have a value which is not finite."""
        return list(
            self.keep("broken quantities", lambda: tables.broken_quantities(self._connection))
        )

    def step_lines(self) -> list[StepLine]:
        """The headline of every quantity at every site, over the steps of each run."""
        return self.keep(
            "step lines", lambda: group_by_site(tables.read_step_rows(self._connection))
        )

    def last_steps(self) -> dict[str, int]:
        """The last step of every run."""
        return dict(self.keep("last steps", lambda: tables.last_steps(self._connection)))

    def last_layer(self, stack: str) -> int:
        """The largest layer that a reading of this stack has."""
        return self.keep(("depth", stack), lambda: tables.last_layer(self._connection, stack))

    def readings(self, conditions: Mapping[str, object]) -> list[Reading]:
        """The readings whose columns have these values, in the order in which they came."""
        rows = self._rows_of(conditions.get("quantity"))
        if rows is None:
            self._forget_what_changed()
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

        Of many, SQLite picks the run and the step that are drawn, and what stands at one place of
        the model becomes one reading: a million of them take ten seconds to make.
        """
        if self.count() <= MOST_ROWS_KEPT:
            return self.readings(conditions)
        self._forget_what_changed()
        rows = tables.read_places(self._connection, conditions)
        if rows is None:
            rows = tables.read_rows(self._connection, conditions)
        return tables.as_readings(self._connection, rows)

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
