"""The record: all readings of a run, what they mean and where they came from.

A record is append-only and tidy: one row per number. It lives in memory until it is saved, or in
a file from the start, which other processes may read while it grows.
"""

from __future__ import annotations

import os
import sqlite3
import warnings
import weakref
from collections.abc import Iterable
from contextlib import contextmanager, suppress
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from leadline.errors import RecordError, UnknownName, as_whole_number, check_path, shown
from leadline.record.file import store, tables
from leadline.record.file.checksum import keep_unclosed
from leadline.record.file.faults import cannot_write
from leadline.record.file.reader import Reader
from leadline.record.provenance import number_at, text_at
from leadline.record.rows.address import WHOLE_POINTS, parse_address
from leadline.record.rows.finding import Finding
from leadline.record.rows.quantity import Quantity
from leadline.record.rows.reading import Reading
from leadline.record.rows.selection import choose_line, group_into_lines
from leadline.record.rows.site import OUTSIDE, RUN
from leadline.record.run.watching import attempts_of, is_watched, replaced, without_replaced
from leadline.record.views import (
    VIEWS,
    NoSuchView,
    findings_to_show,
    how_to_make,
    maps_to_show,
    view_reader,
    written_by,
)
from leadline.record.words.screen import Screen, Showable

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from os import PathLike
    from types import EllipsisType, TracebackType

    from leadline.instruments.attacks.result import AttackTable
    from leadline.instruments.collapse.result import Collapse
    from leadline.instruments.jacobian.result import Jacobian, Lyapunov
    from leadline.instruments.paths.result import Paths
    from leadline.reading.scan.scan import Scan
    from leadline.record.file.checksum import Integrity
    from leadline.record.rows.profile import Profile
    from leadline.record.rows.step_line import StepLine
    from leadline.record.words.table import TextTable

__all__ = ["Record", "check_record"]


class Record(Showable):
    """All readings of a run, with their definitions and their provenance.

    `Record()` lives in memory, `Record.create(path)` in a file that grows, `Record.open(path)`
    reads a file.
    """

    path: Path | None
    in_memory: dict[str, Any]
    """What this process alone holds, such as singular vectors: no file keeps it."""

    def __init__(self) -> None:
        self._attach(store.create_in_memory(), path=None, writable=True)

    @classmethod
    def create(cls, path: str | PathLike[str], *, journal: store.Journal = "wal") -> Self:
        """Start a record in a new file. Others can open it while it grows.

        With `journal="delete"` also from another machine that sees the file.
        """
        place = check_path(path)
        record = cls.__new__(cls)
        record._attach(store.create_file(place, journal=journal), path=place, writable=True)
        return record

    @classmethod
    def open(cls, path: str | PathLike[str]) -> Self:
        """Open a record file for reading. It shows rows that a writer still adds.

        A finished file is read once: what a later writer adds is there when it is opened again.
        The same holds for a file of an older schema, which is read as it is now.
        """
        place = check_path(path)
        record = cls.__new__(cls)
        connection, integrity = store.open_file(place)
        record._attach(connection, path=place, writable=False, integrity=integrity)
        if integrity != "checked":
            record._refuse_unreadable()
        return record

    @classmethod
    def reopen(cls, path: str | PathLike[str], *, journal: store.Journal = "wal") -> Self:
        """Open a record file to add to it, one writer at a time; what it holds is kept."""
        place = check_path(path)
        record = cls.__new__(cls)
        record._attach(store.reopen_file(place, journal=journal), path=place, writable=True)
        return record

    def _attach(
        self,
        connection: sqlite3.Connection,
        *,
        path: Path | None,
        writable: bool,
        integrity: Integrity = "unclosed",
    ) -> None:
        self.path = path
        self._integrity: Integrity = integrity
        self.in_memory = {}
        self._together = False
        self._writable = writable
        self._open_connection: sqlite3.Connection | None = connection
        self._read_once = Reader(connection, growing=path is not None and integrity == "unclosed")
        self._finish = weakref.finalize(
            self,
            store.finish,
            connection,
            written=path.resolve() if path and writable else None,
            process=os.getpid(),
        )

    @property
    def integrity(self) -> Integrity:
        """What was known about the file when it was opened.

        "checked": it is what was written, by its checksums. "unclosed": it is still being written,
        or its writer was cut off, so that it has none yet. "without checksums": it was written
        before there were any.
        """
        return self._integrity

    def describe(self, quantity: Quantity) -> None:
        """Store the definition of a quantity. Readings need it; a second, other one is refused."""
        _check_kind(quantity, Quantity)
        known = self.quantities.get(quantity.name)
        if known is not None and known.is_same(quantity):
            return
        if known is not None:
            raise RecordError(
                f"The record already has another definition of {quantity.name!r}: "
                "give the new quantity another name."
            )
        with self._writing() as connection:
            tables.add_quantity(connection, quantity)

    def append(self, readings: Iterable[Reading]) -> None:
        """Add readings: all of them, or none if one cannot be kept."""
        known = self.quantities
        if not isinstance(readings, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise RecordError(f"Expected readings, but got {shown(readings)}.")

        def described() -> Iterator[Reading]:
            for reading in readings:
                _check_kind(reading, Reading)
                if reading.quantity not in known:
                    raise UnknownName("described quantity", reading.quantity, known)
                yield reading

        with self._writing() as connection:
            tables.add_readings(connection, described())

    def note(self, key: str, value: object) -> None:
        """Set one entry of the provenance to a JSON value."""
        with self._writing() as connection:
            tables.set_provenance(connection, key, value)

    def forget(self, key: str) -> None:
        """Remove one entry of the provenance, if it is there."""
        with self._writing() as connection:
            tables.remove_provenance(connection, key)

    def add_finding(self, finding: Finding) -> None:
        """Store a verdict with the record."""
        _check_kind(finding, Finding)
        with self._writing() as connection:
            tables.add_finding(connection, finding)

    def wait_at_most(self, seconds: float) -> None:
        """Wait no longer than this for readers that hold the file, before writing is given up."""
        self._connection.execute(f"PRAGMA busy_timeout = {round(1000 * seconds)}")

    @contextmanager
    def together(self) -> Generator[None]:
        """Write whatever is added inside in one transaction: all of it, or nothing.

        Inside of another one it belongs to that one.
        """
        if self._together:
            yield
            return
        with self._writing() as connection:
            connection.execute("BEGIN")
            self._together = True
            try:
                yield
            finally:
                self._together = False

    @property
    def provenance(self) -> dict[str, Any]:
        """Where the numbers came from: one JSON value per key. Change it with `note`."""
        return self._reader.provenance()

    @property
    def quantities(self) -> dict[str, Quantity]:
        """The definitions by name, in the order they were described."""
        return self._reader.quantities()

    @property
    def findings(self) -> list[Finding]:
        """The verdicts, the serious ones first, each kind in the order it was added.

        Those about updates that a run has made again, from an earlier checkpoint, are left out.
        """
        return without_replaced(self._reader.findings(), self._reader.provenance_at("watch"))

    @property
    def replaced_findings(self) -> list[Finding]:
        """The warnings about updates that a watched run has made again, from an earlier step."""
        return replaced(self._reader.findings(), self._reader.provenance_at("watch"))

    @property
    def stacks(self) -> list[str]:
        """The stacks, in the order in which their readings came.

        Numbers of a run have none, and neither have tensors outside of the blocks.
        """
        without = (RUN.stack, OUTSIDE)
        return [name for name in self._reader.distinct("stack") if name not in without]

    @property
    def runs(self) -> list[str]:
        """The runs, in the order in which their readings came; a run without a name is ''."""
        return self._reader.distinct("run")

    def last_steps(self) -> dict[str, int]:
        """Return the last step of every run."""
        return self._reader.last_steps()

    def depth(self, stack: str | None = None) -> int:
        """The number of blocks of a stack; of the first one if none is named."""
        name = self._stack(stack)
        declared = number_at(self._reader.provenance_at("anatomy") or {}, "stacks", name, "depth")
        if declared is not None:
            return int(declared)
        return self._reader.last_layer(name)

    def __repr__(self) -> str:
        """One line: what wrote it, the model, its layers, its readings and its file."""
        if self._open_connection is None:
            return f"<Record, closed{f', {self.path}' if self.path else ''}>"
        name = text_at(self.provenance, "model", "name")
        depths = [f"{stack} {self.depth(stack)}" for stack in self.stacks]
        facts = [
            " of ".join(
                one for one in (written_by(self.provenance), shown(name) if name else "") if one
            ),
            f"layers: {', '.join(depths)}" if depths else "",
            f"{len(self):,} readings",
            str(self.path or "in memory"),
        ]
        return f"<Record: {'; '.join(fact for fact in facts if fact)}>"

    def __len__(self) -> int:
        """The number of readings."""
        return self._reader.count()

    def __bool__(self) -> bool:
        # Without this, a record that holds no reading yet would count as false.
        return True

    def __contains__(self, quantity: object) -> bool:
        return isinstance(quantity, str) and quantity in self.quantities

    def select(
        self,
        quantity: str | None = None,
        *,
        statistic: str | None = None,
        stack: str | None = None,
        layer: int | None = None,
        sublayer: int | EllipsisType | None = ...,
        point: str | None = None,
        run: str | None = None,
        step: int | None = None,
        seed: int | None = None,
    ) -> list[Reading]:
        """Return the readings that match, in the order they were appended.

        None matches anything, except for `sublayer=None`, which matches sites that are not sublayers.
        """
        if quantity is not None:
            self._definition(quantity)
        return self._reader.readings(
            _conditions(
                sublayer,
                quantity=quantity,
                statistic=statistic,
                stack=stack,
                layer=layer,
                point=point,
                run=run,
                step=step,
                seed=seed,
            )
        )

    def broken_quantities(self) -> list[str]:
        """The quantities that have a value which is not finite."""
        return self._reader.broken_quantities()

    def step_lines(self) -> list[StepLine]:
        """Return the headline of every quantity at every site, over the steps of each run.

        Heads, lanes and tokens are left out where a quantity has a summary of them.
        """
        return list(self._reader.step_lines())

    def profiles(
        self, quantity: str, *, run: str | None = None, step: int | None = None
    ) -> list[Profile]:
        """Return every line over depth that a chart of this quantity draws, the headline first.

        Without `run` the first run is taken, without `step` its last step; seeds are averaged.
        The stream is shown between blocks, not between the writes of one block.
        """
        definition = self._definition(quantity)
        inside: EllipsisType | None = None if definition.lives_on == "stream" else ...
        lines = self._lines(quantity, sublayer=inside, run=run, step=step)
        if (
            not definition.ingredient_of
        ):  # a tensor outside of the blocks has no depth to be drawn over
            lines = [line for line in lines if line.stack != OUTSIDE]
        return sorted(lines, key=lambda line: line.statistic != definition.headline)

    def by_layer(
        self,
        quantity: str,
        *,
        statistic: str | None = None,
        stack: str | None = None,
        point: str | None = None,
        sublayer: int | None = None,
        run: str | None = None,
        step: int | None = None,
    ) -> Profile:
        """Return one line over depth.

        The statistic is the headline of the quantity if none is named, the stack the first one. A
        quantity of sublayers needs `point` or `sublayer` where blocks have several. For the
        stream, `sublayer` asks for the sites after that write inside each block.
        """
        definition = self._definition(quantity)
        inside: int | EllipsisType | None = sublayer if definition.lives_on == "stream" else ...
        return choose_line(
            self._lines(quantity, sublayer=inside, run=run, step=step),
            quantity=quantity,
            statistic=statistic or definition.headline,
            stack=self._stack(stack),
            point=point,
            sublayer=sublayer,
        )

    def __getitem__(self, address: str) -> Profile:
        """Return the headline of a quantity: `record["stream.norm"]`.

        A role stands in brackets, a stack before a slash: `record["encoder/update.norm[mlp]"]`.
        """
        is_text = isinstance(address, str)  # pyright: ignore[reportUnnecessaryIsInstance]
        line = parse_address(address) if is_text else None
        if line is None or line.quantity not in self:
            raise UnknownName("quantity of this record", address, self.quantities)
        points = {profile.point for profile in self.profiles(line.quantity)}
        line = parse_address(address, points=points) or line
        point = line.point or next((one for one in WHOLE_POINTS if one in points), None)
        return self.by_layer(line.quantity, stack=line.stack, point=point, sublayer=line.sublayer)

    def to_pandas(self) -> Any:
        """Return all rows as a pandas DataFrame, one column per field."""
        from leadline.record.file import export

        return export.to_pandas(self)

    def to_arrow(self) -> Any:
        """Return all rows as a pyarrow Table, one column per field."""
        from leadline.record.file import export

        return export.to_arrow(self)

    def to_xarray(self) -> Any:
        """Return an xarray Dataset with one variable per quantity."""
        from leadline.record.file import export

        return export.to_xarray(self)

    def to_csv(self, path: str | PathLike[str]) -> None:
        """Write all rows to a CSV file, one column per field."""
        from leadline.record.file import export

        export.to_csv(self, check_path(path))

    @property
    def instrument(self) -> str:
        """The instrument that wrote the record, such as "jacobian"; "" where it was `measure`."""
        return text_at(self._reader.provenance_at("instrument") or {}, "name")

    @property
    def jacobian(self) -> Jacobian:
        """What `leadline.jacobian` measured: singular values of a stretch of blocks, with errors."""
        return self.view("jacobian")

    @property
    def lyapunov(self) -> Lyapunov:
        """What `leadline.lyapunov` measured: how directions grow from block to block."""
        return self.view("lyapunov")

    @property
    def collapse(self) -> Collapse:
        """What `leadline.collapse` measured: how far tokens differ, far below rounding."""
        return self.view("collapse")

    @property
    def paths(self) -> Paths:
        """What `leadline.paths` measured: the output by the length of the paths to it."""
        return self.view("paths")

    @property
    def attacks(self) -> AttackTable:
        """What `leadline.bounds(attack=True)` tried against each bound."""
        return self.view("attacks")

    @property
    def scan(self) -> Scan:
        """What `leadline.scan` found: every checkpoint, and what changes over them."""
        return self.view("scan")

    def view(self, instrument: str) -> Any:
        """Return the rows of an instrument as its result, a thin reader made once."""
        read = view_reader(instrument)
        if self.instrument != instrument:
            writer = written_by(self.provenance)
            made = f" was written by leadline.{writer} and" if writer else ""
            raise NoSuchView(
                f"This record{made} holds no result of {instrument}: use {how_to_make(instrument)}."
            )
        return _own_copy(self._reader.keep(("view", instrument), lambda: read(self)))

    def __getattr__(self, name: str) -> Any:
        """Hand over what the result of an instrument had before results became records."""
        if name in VIEWS and self._open_connection:
            return self.view(name)  # it raised an AttributeError: raise it again, with its words
        instrument = "" if name.startswith("_") or not self._open_connection else self.instrument
        view = self.view(instrument) if instrument in VIEWS else None
        if view is None or not hasattr(view, name):
            raise AttributeError(f"A record has no attribute {name!r}.", name=name, obj=self)
        warnings.warn(
            f"leadline.{instrument} returns a record now: write record.{instrument}.{name}.",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(view, name)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the record to one file, in one step; a file that stands there is replaced."""
        place = check_path(path)
        if self.path is not None and place.resolve() == self.path.resolve():
            if self._writable:
                with self._writing() as connection:
                    store.fold_log(connection)
        else:
            store.save_file(self._connection, place)
        return place

    def screen(self, *, everything: bool = False) -> Screen:
        """Return what is shown of it: the answer first, then the rows that matter most."""
        from leadline.record.words.text import record_screen

        if self.instrument in VIEWS:
            return self.view(self.instrument).screen(everything=everything)
        findings = findings_to_show(self)
        maps = maps_to_show(self)
        return record_screen(self, findings=findings, everything=everything, by_step=maps)

    def table(self) -> TextTable:
        """Return every line over depth as a table; `print(record)` shows those that matter most."""
        from leadline.record.words.printable import printable_table
        from leadline.record.words.summary import summarize
        from leadline.record.words.text import depth_table

        return printable_table(depth_table(summarize(self)))

    def close(self) -> None:
        """Close the record; a file that grew becomes one plain file."""
        self._open_connection = None
        self._finish()

    def __reduce__(self) -> Any:
        raise RecordError(
            "A record is a file that is open, so it cannot be pickled or copied; use "
            "record.save(path) and leadline.Record.open(path)."
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._open_connection is None:
            raise RecordError("This record is closed: open its file again to read it.")
        return self._open_connection

    @property
    def _reader(self) -> Reader:
        _ = self._connection  # refuses a record that is closed
        return self._read_once

    @contextmanager
    def _writing(self) -> Generator[sqlite3.Connection]:
        if not self._writable:
            raise RecordError(
                f"The record {self.path} was opened for reading, so nothing can be added to it."
            )
        if self._together:
            # A part of the transaction is all or nothing, too.
            self._connection.execute("SAVEPOINT part")
            try:
                yield self._connection
            except BaseException:
                # Where the disk is full SQLite has ended the whole transaction already.
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK TO part")
                raise
            finally:
                with suppress(sqlite3.Error):
                    self._connection.execute("RELEASE part")
                self._read_once.forget()
            return
        try:
            if self.path is not None:
                keep_unclosed(self._connection)
            with self._connection as connection:
                yield connection
        except sqlite3.Error as error:
            raise cannot_write(self.path or "in memory", error) from error
        finally:
            self._read_once.forget()

    def _refuse_unreadable(self) -> None:
        """Refuse a file that no checksum vouches for if its texts cannot be read."""
        try:
            _ = self.provenance, self.quantities, self.findings
        except RecordError:
            self.close()
            raise

    def _definition(self, quantity: str) -> Quantity:
        known = self.quantities
        if quantity not in self:
            raise UnknownName("quantity of this record", quantity, known)
        return known[quantity]

    def _stack(self, stack: str | None) -> str:
        known = self.stacks
        if not known:
            raise RecordError("The record holds no readings yet.")
        if stack is not None and stack not in known:
            raise UnknownName("stack of this record", stack, known)
        return known[0] if stack is None else stack

    def _lines(
        self,
        quantity: str,
        *,
        sublayer: int | EllipsisType | None,
        run: str | None,
        step: int | None,
    ) -> list[Profile]:
        return self._reader.keep(
            ("lines", quantity, sublayer, run, step),
            lambda: self._make_lines(quantity, sublayer=sublayer, run=run, step=step),
        )

    def _last_attempt(self, quantity: str) -> str | None:
        """The last attempt of a run that was cut off and went on; None of any other record."""
        runs = self.runs
        if len(runs) < 2 or not is_watched(self):
            return None
        last_first = [attempt.run for attempt in reversed(attempts_of(self))]
        read = (
            run for run in last_first if self._reader.readings({"quantity": quantity, "run": run})
        )
        return next(read, None)

    def _make_lines(
        self,
        quantity: str,
        *,
        sublayer: int | EllipsisType | None,
        run: str | None,
        step: int | None,
    ) -> list[Profile]:
        if run is None:
            run = self._last_attempt(quantity)
        conditions = _conditions(sublayer, quantity=quantity, run=run, step=step)
        readings = self._reader.readings_of_lines(conditions)
        if run is None and readings:
            readings = [reading for reading in readings if reading.run == readings[0].run]
        if step is None and readings:
            last = max(reading.step for reading in readings)
            readings = [reading for reading in readings if reading.step == last]
        return group_into_lines(readings, over=self.quantities[quantity].over)


def _own_copy(view: Any) -> Any:
    """Return a result with arrays of its own, which the caller may write to."""
    copied = copy(view)
    for name in getattr(view, "__dataclass_fields__", ()):
        value = getattr(view, name)
        if isinstance(value, np.ndarray):
            object.__setattr__(copied, name, value.copy())
    return copied


def check_record(value: object) -> None:
    """Raise an error unless `value` is a record."""
    if not isinstance(value, Record):
        raise RecordError(
            f"Expected a record, but got {shown(value)}; open a file with leadline.Record.open(path)."
        )


def _check_kind(value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise RecordError(f"Expected a {kind.__name__}, but got {shown(value)}.")


def _conditions(sublayer: int | EllipsisType | None, **columns: object) -> dict[str, object]:
    """Return what SQLite compares; None leaves a column free, but for that of sublayers."""
    wanted = {column: value for column, value in columns.items() if value is not None}
    if sublayer is not ...:
        wanted["sublayer"] = sublayer
    return {column: _condition(column, value) for column, value in wanted.items()}


_INTEGER_COLUMNS = ("layer", "sublayer", "step", "seed")


def _condition(column: str, value: object) -> object:
    """Return what SQLite compares a column with: a text, or an integer of at most 64 bits."""
    if column not in _INTEGER_COLUMNS:
        if not isinstance(value, str):
            raise RecordError(f"{column} is {shown(value)}; give a text.")
        return value
    if value is None:
        return None
    number = as_whole_number(value)
    if number is None or abs(number) >= 2**63:
        raise RecordError(f"{column} is {shown(value)}; give a whole number.")
    return number
