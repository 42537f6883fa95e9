"""Record files of schema 1, as older versions wrote them: all of them open, and go on."""

from __future__ import annotations

import csv
import dataclasses
import importlib
import json
import pkgutil
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import leadline
from leadline.errors import RecordError
from leadline.record import Quantity, Reading, Record, Site
from leadline.record.file import migrations
from leadline.record.file.schema import SCHEMA, write_schema
from leadline.record.file.tables import read_quantities
from leadline.record.file.unfinished import UNFINISHED

FIXTURES = Path(__file__).parents[3] / "fixtures" / "schema1"
FILES = sorted(path.relative_to(FIXTURES).as_posix() for path in FIXTURES.rglob("*.leadline"))
WITH_ROWS = [name for name in FILES if (FIXTURES / name).with_suffix(".csv").exists()]
SITE = ("stack", "layer", "sublayer", "point", "lane", "head", "token", "rank")


@pytest.fixture
def copy_of(tmp_path: Path) -> Any:
    """Copy a file, and the log beside it, to where it may be written to."""

    def copy(name: str) -> Path:
        for beside in ("", "-wal"):
            source = Path(f"{FIXTURES / name}{beside}")
            if source.exists():
                shutil.copy(source, tmp_path)
        return tmp_path / Path(name).name

    return copy


def schema_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA user_version").fetchone()[0]


def _integer(text: str) -> int | None:
    return int(text) if text else None


def _readings(path: Path) -> list[Reading]:
    """The rows of a CSV file of schema 1."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [
        Reading(
            row["quantity"],
            Site(
                **{
                    name: row[name] if name in ("stack", "point") else _integer(row[name])
                    for name in SITE
                }
            ),
            row["statistic"],
            float(row["value"]),
            *(float(row[end]) if row[end] else None for end in ("lower", "upper")),
            row["run"],
            int(row["step"]),
            _integer(row["seed"]),
        )
        for row in rows
    ]


def test_there_are_files_of_every_kind() -> None:
    stems = {Path(name).stem for name in FILES}
    assert stems == {
        *("measure", "train", "sweep", "jacobian"),
        *("interrupted", "interrupted-sweep", "killed"),
    }
    assert all(schema_of(FIXTURES / name) == 1 for name in WITH_ROWS)


@pytest.mark.parametrize("name", WITH_ROWS)
def test_every_number_and_every_word_is_what_was_written(name: str) -> None:
    path = FIXTURES / name
    rest = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    with Record.open(path) as record:
        # repr tells NaN from None and keeps every digit.
        assert repr(record.select()) == repr(_readings(path.with_suffix(".csv")))
        assert record.provenance == rest["provenance"]
        quantities = {n: dataclasses.asdict(q) for n, q in record.quantities.items()}
        assert list(quantities) == list(rest["quantities"])
        for one, fields in rest["quantities"].items():
            assert quantities[one] | fields == quantities[one]
        assert [finding.verdict for finding in record.findings] == [
            finding["verdict"] for finding in rest["findings"]
        ]
        expected = "checked" if path.parent.name == "closed" else "without checksums"
        assert record.integrity == expected


@pytest.mark.parametrize("name", FILES)
def test_reading_leaves_the_file_as_it_is(copy_of: Any, name: str, tmp_path: Path) -> None:
    path = copy_of(name)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with Record.open(path) as record:
        assert record.select() and str(record)
        with pytest.raises(RecordError, match="opened for reading"):
            record.note("a", 1)
    assert {f.name: f.read_bytes() for f in tmp_path.iterdir() if f.suffix != ".leadline-shm"} == (
        before
    )


@pytest.mark.parametrize("name", WITH_ROWS)
def test_it_is_reported_compared_and_exported(name: str, tmp_path: Path) -> None:
    with Record.open(FIXTURES / name) as record:
        leadline.report(record, tmp_path / "page.html")
        assert (tmp_path / "page.html").stat().st_size > 10_000
        if record.stacks:
            comparison = leadline.compare(record, record)
            assert str(comparison)
        record.to_csv(tmp_path / "rows.csv")
        assert len(record.to_pandas()) == record.to_arrow().num_rows == len(record)
        record.to_xarray()
        record.save(tmp_path / "copy.leadline")
        with Record.open(tmp_path / "copy.leadline") as copy:
            assert repr(copy.select()) == repr(record.select())
            assert copy.quantities == record.quantities and copy.integrity == "checked"
    assert schema_of(tmp_path / "copy.leadline") == SCHEMA


def test_a_measurement_of_schema_1_still_has_its_bounds() -> None:
    with Record.open(FIXTURES / "measure.leadline") as record:
        evaluation = leadline.bounds(record)
    rows = [row for bound in evaluation.bounds for row in bound.rows]
    assert not any(row.violated for row in rows)
    assert sum(row.applies and row.ratio > 0 for row in rows) > 10


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_written_to_becomes_one_of_the_present_schema(
    copy_of: Any, name: str
) -> None:
    path = copy_of(name)
    with Record.open(path) as record:
        before, definitions = repr(record.select()), record.quantities
    quantity = next(iter(definitions))
    row = Reading(quantity, Site("decoder", 1, hops=3, example=2), "mean", 0.5, exponent=-(10**18))
    with Record.reopen(path) as record:
        assert repr(record.select()) == before
        assert record.quantities == definitions
        record.append([row])
    assert schema_of(path) == SCHEMA
    with Record.open(path) as record:
        *old, new = record.select()
        assert (repr(old), new) == (before, row)
        assert record.integrity == "checked"


def test_a_migrated_file_has_the_same_tables_as_a_new_one(copy_of: Any, tmp_path: Path) -> None:
    path = copy_of("measure.leadline")
    Record.reopen(path).close()
    Record.create(tmp_path / "new.leadline").close()
    query = "SELECT name, sql FROM sqlite_master ORDER BY name"

    def layout(file: Path) -> list[tuple[str, str]]:
        with closing(sqlite3.connect(file)) as connection:
            return connection.execute(query).fetchall()

    assert layout(path) == layout(tmp_path / "new.leadline")


_STEPS = (0, 1, len(migrations._TO_2) - 1, len(migrations._TO_2))


@pytest.mark.parametrize("name", ["measure.leadline", "closed/measure.leadline"])
@pytest.mark.parametrize("step", _STEPS)
def test_a_migration_that_fails_leaves_schema_1(
    copy_of: Any, monkeypatch: pytest.MonkeyPatch, name: str, step: int
) -> None:
    path = copy_of(name)
    with Record.open(path) as record:
        before = repr(record.select())
    broken = (*migrations._TO_2[:step], "ALTER TABLE absent ADD COLUMN x TEXT")
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "_STATEMENTS", {2: broken})
        with pytest.raises(RecordError, match="no such table: absent"):
            Record.reopen(path)
    assert schema_of(path) == 1
    with Record.open(path) as record:
        assert repr(record.select()) == before
    Record.reopen(path).close()
    assert schema_of(path) == SCHEMA


def test_a_process_that_is_killed_in_a_migration_leaves_schema_1(copy_of: Any) -> None:
    path = copy_of("measure.leadline")
    program = (
        "import os, sys\n"
        "from leadline.record import Record\n"
        "from leadline.record.file import migrations\n"
        "declare = migrations._declare\n"
        "def killed(connection):\n"
        "    if connection.execute('PRAGMA database_list').fetchone()[2]:\n"
        "        os._exit(9)\n"
        "    declare(connection)  # the copy in memory\n"
        "migrations._declare = killed\n"
        "Record.reopen(sys.argv[1])\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert ended.returncode == 9
    assert schema_of(path) == 1
    with Record.open(path) as record:
        assert len(record) == len(_readings(FIXTURES / "measure.csv"))


def test_two_that_open_one_file_to_write_migrate_it_once(copy_of: Any) -> None:
    path = copy_of("measure.leadline")
    with closing(sqlite3.connect(path)) as one, closing(sqlite3.connect(path)) as other:
        migrations.migrate(one, 2)
        migrations.migrate(other, 2)
    assert schema_of(path) == 2


# --- going on ------------------------------------------------------------------------------------


def _tower(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(FIXTURES)
    return importlib.import_module("tower")


@pytest.mark.parametrize("name", ["interrupted", "killed", "closed/interrupted", "closed/killed"])
def test_an_interrupted_measurement_goes_on_to_the_rows_of_a_whole_one(
    copy_of: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tower = _tower(monkeypatch)
    path = copy_of(f"{name}.leadline")
    with Record.open(path) as record:
        request = record.provenance[UNFINISHED]["request"]
        kept = record.select()
    # The versions of other libraries are part of the request, and those here may be newer.
    monkeypatch.setattr(
        "leadline.instruments.passes.measurement.versions", lambda: request["versions"]
    )
    record = leadline.measure(
        tower.Tower(), tower.written_inputs(), probes=request["probes"], path=path
    )
    with record:
        assert UNFINISHED not in record.provenance
        rows = record.select()
    assert schema_of(path) == SCHEMA
    whole = _readings(FIXTURES / "jacobian.csv")
    assert 0 < len(kept) < len(whole)
    assert repr(rows[: len(kept)]) == repr(kept) == repr(whole[: len(kept)])
    assert [dataclasses.replace(r, value=0, lower=None, upper=None) for r in rows] == [
        dataclasses.replace(r, value=0, lower=None, upper=None) for r in whole
    ]
    # Another processor may round otherwise.
    assert [r.value for r in rows] == pytest.approx([r.value for r in whole], rel=1e-4)


def test_an_interrupted_sweep_goes_on_to_the_rows_of_a_whole_one(
    copy_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from leadline.cli.main import run
    from leadline.lab.cell import run_cell
    from leadline.lab.engines import ENGINES, Engine

    class Here(Engine):
        def run(self, jobs: Any, orders: Any) -> Any:
            for job in jobs:
                yield run_cell(job.cell, folder=None)

    monkeypatch.setitem(ENGINES._entries, "here", Here)
    _tower(monkeypatch)
    arguments = importlib.import_module("write").RUN
    path = copy_of("interrupted-sweep.leadline")
    command = ["sweep", "depth=1,2", "--seeds=1", *arguments, "--engine=here", "-o", str(path)]
    with pytest.raises(SystemExit) as ending:
        run(command)
    assert not ending.value.code
    assert schema_of(path) == SCHEMA
    kept, whole = (_readings(FIXTURES / f"{n}.csv") for n in ("interrupted-sweep", "sweep"))
    with Record.open(path) as record:
        rows = record.select()
        assert [key for key in record.provenance if key.startswith("cell:")] == [
            "cell:depth=2, seed=0",
            "cell:depth=1, seed=0",
        ]
    assert repr(rows[: len(kept)]) == repr(kept)
    assert [dataclasses.replace(r, value=0) for r in rows] == [
        dataclasses.replace(r, value=0) for r in whole
    ]
    assert [r.value for r in rows] == pytest.approx([r.value for r in whole], rel=1e-3)


# --- what readers knew by name ---------------------------------------------------------------------


def _declared_now() -> dict[str, Quantity]:
    """Every quantity that stands in a module of the instruments or of the lab."""
    known: dict[str, Quantity] = {}
    for package in ("leadline.instruments", "leadline.lab"):
        folder = importlib.import_module(package).__path__
        for entry in pkgutil.walk_packages(folder, f"{package}."):
            if "ray" in entry.name:  # of an extra that may be missing
                continue
            if ".watch" in entry.name:  # its loss is any loop's, and no file of schema 1 has it
                continue
            for value in vars(importlib.import_module(entry.name)).values():
                several = value if isinstance(value, tuple) else (value,)
                known |= {one.name: one for one in several if isinstance(one, Quantity)}
    return known


def _migrated(names: list[str]) -> dict[str, Quantity]:
    """Quantities of these names, as they come out of a file of schema 1."""
    with closing(sqlite3.connect(":memory:")) as connection:
        write_schema(connection, schema=1)
        connection.executemany(
            "INSERT INTO quantity VALUES (?, '', '', '', '', 'stream', '', '', '', 'linear', '')",
            [(name,) for name in names],
        )
        connection.commit()
        migrations.migrate(connection, 2)
        return read_quantities(connection)


NAMES = (FIXTURES / "quantities.txt").read_text(encoding="utf-8").split()
READER_FIELDS = ("topic", "leads", "axes", "beside", "ingredient_of")


def test_the_migration_declares_what_the_quantities_declare_today() -> None:
    declared, migrated = _declared_now(), _migrated(NAMES)
    assert set(NAMES) <= set(declared)
    differences = {
        (name, field): (getattr(migrated[name], field), getattr(declared[name], field))
        for name in NAMES
        for field in READER_FIELDS
        if getattr(migrated[name], field) != getattr(declared[name], field)
    }
    assert differences == {}


def test_every_name_of_the_migration_is_one_of_schema_1() -> None:
    named = {
        *migrations._LEADING,
        *migrations._TRAINING,
        *(name for names in migrations._AXES.values() for name in names),
        *(name for names in migrations._INGREDIENTS.values() for name in names),
        *migrations._BESIDE,
        *migrations._BESIDE.values(),
    }
    assert named <= set(NAMES)


def test_a_quantity_of_somebody_elses_gets_the_topic_of_its_name() -> None:
    migrated = _migrated(["mine.largest", "alone"])
    assert {name: quantity.topic for name, quantity in migrated.items()} == {
        "mine.largest": "mine",
        "alone": "alone",
    }


def test_definitions_of_schema_1_are_the_same_as_those_of_today() -> None:
    """Otherwise an interrupted measurement or sweep could not go on."""
    declared = _declared_now()
    others = {
        quantity.name
        for name in WITH_ROWS
        for quantity in _definitions(FIXTURES / name).values()
        if not quantity.is_same(declared[quantity.name])
    }
    # Their formulas are worded anew; attention is measured in one go, so nothing has to go on.
    assert others == {"attention.logit_span", "attention.second_singular_value"}


def _definitions(path: Path) -> dict[str, Quantity]:
    with Record.open(path) as record:
        return record.quantities
