"""Checksums: written when a file is closed, checked when it is opened."""

from __future__ import annotations

import math
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from leadline.errors import RecordError
from leadline.record import Finding, Quantity, Reading, Record, Site
from leadline.record.file import checksum, store
from tests.damage import PAGE, read_all
from tests.synthetic import gpt2_record

NORM = Quantity("stream.norm", "Norm", "|x|", "sqrt(sum x^2)")


def _row(layer: int, value: float = 1.0) -> Reading:
    return Reading(NORM.name, Site("decoder", layer), "mean", value)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "a.leadline"
    gpt2_record().save(path)
    return path


def _edit(path: Path, *commands: str) -> None:
    """Change a file as any SQLite program could."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for trigger in ("changed", "deleted"):
            connection.execute(f"DROP TRIGGER IF EXISTS reading_is_never_{trigger}")
        for command in commands:
            connection.execute(command)


def _root(path: Path, name: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        return connection.execute(query, (name,)).fetchone()[0]


def _forget_checksums(path: Path) -> None:
    """Make the file what was written before there were checksums."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DROP TABLE checksum")
        connection.execute("VACUUM")


@contextmanager
def _full_disk(size: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_that_was_saved_or_closed_is_checked_by_its_bytes_alone(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown = tmp_path / "b.leadline"
    with Record.create(grown) as record:
        record.describe(NORM)
        record.append([_row(1)])
    shutil.copy(saved, tmp_path / "copy.leadline")

    def never(*_: object) -> bytes:
        raise AssertionError("the tables need not be read")

    monkeypatch.setattr(checksum, "_digest_of", never)
    for path in (saved, grown, tmp_path / "copy.leadline"):
        with Record.open(path) as record:
            assert record.integrity == "checked"


@pytest.mark.parametrize(
    ("command", "lost"),
    [
        ("UPDATE reading SET value = value + 1 WHERE rowid = 7", "the readings"),
        ("UPDATE reading SET value = NULL WHERE rowid = 7", "the readings"),
        ("UPDATE reading SET run = 'other' WHERE rowid = 7", "the readings"),
        ("DELETE FROM reading WHERE rowid = 7", "the readings"),
        ("UPDATE finding SET verdict = 'All is well.'", "the findings"),
        ("DELETE FROM finding", "the findings"),
        ("UPDATE quantity SET title = 'Norm' WHERE rowid = 1", "the definitions"),
        ("UPDATE provenance SET json = '1' WHERE rowid = 1", "the provenance"),
    ],
)
def test_a_file_that_was_edited_is_refused_and_says_what_is_lost_and_what_is_intact(
    saved: Path, command: str, lost: str
) -> None:
    with closing(sqlite3.connect(saved, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        triggers = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(command)
        for _, sql in triggers:  # or the layout would differ, too
            connection.execute(sql)
    with pytest.raises(RecordError) as caught:
        Record.open(saved)
    words = [
        "the layout of the tables",
        "the provenance",
        "the definitions",
        "the findings",
        "the readings",
    ]
    words.remove(lost)
    one = lost == "the provenance"
    mismatch = "does not match its checksum" if one else "do not match their checksums"
    intact = f"{', '.join(words[:-1])} and {words[-1]}"
    assert str(caught.value) == (
        f"The record {saved} was changed or damaged after it was written: {lost} {mismatch}; "
        f"{intact} are intact. Copy it again or measure again."
    )


def test_a_table_that_lost_its_triggers_is_told_apart_from_its_rows(saved: Path) -> None:
    _edit(saved)
    with pytest.raises(RecordError, match="the layout of the tables does not match its checksum;"):
        Record.open(saved)


def test_a_page_that_is_lost_is_named_with_the_reason(saved: Path) -> None:
    content = bytearray(saved.read_bytes())
    begin = (_root(saved, "finding") - 1) * PAGE
    content[begin : begin + PAGE] = bytes(PAGE)
    saved.write_bytes(content)
    with pytest.raises(
        RecordError,
        match=r"the findings do not match their checksums \(the findings cannot be read: database "
        r"disk image is malformed\); .*the definitions and the readings are intact",
    ):
        Record.open(saved)


def test_an_index_that_disagrees_with_its_table_is_refused(saved: Path) -> None:
    content = bytearray(saved.read_bytes())
    begin = (_root(saved, "sqlite_autoindex_quantity_1") - 1) * PAGE
    at = content.index(b"update.norm", begin, begin + PAGE)
    content[at : at + 11] = b"update.nore"
    saved.write_bytes(content)
    with pytest.raises(RecordError, match="all tables are intact, an index or a free page is not"):
        Record.open(saved)


@pytest.mark.parametrize("command", ["VACUUM", "REINDEX", "PRAGMA journal_mode = WAL", "ANALYZE"])
def test_a_file_that_was_only_laid_out_anew_is_what_was_written(saved: Path, command: str) -> None:
    with Record.open(saved) as record:
        content = read_all(record)
    with closing(sqlite3.connect(saved, isolation_level=None)) as connection:
        connection.execute(command)
    with Record.open(saved) as record:
        assert record.integrity == "checked"
        assert read_all(record) == content


def test_an_edit_that_stands_in_a_log_beside_the_file_is_noticed(saved: Path) -> None:
    before = saved.read_bytes()
    with closing(sqlite3.connect(saved, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("UPDATE finding SET verdict = 'All is well.'")
        log = Path(f"{saved}-wal").read_bytes()
        head = saved.read_bytes()[:PAGE]
    saved.write_bytes(head + before[PAGE:])
    Path(f"{saved}-wal").write_bytes(log)
    with pytest.raises(RecordError, match="the findings do not match their checksums"):
        Record.open(saved)


def test_empty_checksums_are_damage_not_a_file_that_was_never_closed(saved: Path) -> None:
    with closing(sqlite3.connect(saved, isolation_level=None)) as connection:
        connection.execute("DELETE FROM checksum")
    with pytest.raises(RecordError, match="its checksums are lost"):
        Record.open(saved)


def test_checksums_under_a_damaged_name_do_not_make_the_file_an_old_one(saved: Path) -> None:
    saved.write_bytes(saved.read_bytes().replace(b"checksum", b"checkrum"))
    with pytest.raises(RecordError, match="a table that no record has, 'checkrum'"):
        Record.open(saved)


def test_a_file_from_before_checksums_opens_and_gets_them_when_it_is_written_again(
    saved: Path, tmp_path: Path
) -> None:
    with Record.open(saved) as record:
        content = read_all(record)
    _forget_checksums(saved)
    with Record.open(saved) as old:
        assert old.integrity == "without checksums"
        assert read_all(old) == content
        old.save(tmp_path / "copy.leadline")
    with Record.open(tmp_path / "copy.leadline") as copy:
        assert (copy.integrity, read_all(copy)) == ("checked", content)
    with Record.reopen(saved) as record:
        record.note("more", 1)
    with Record.open(saved) as again:
        assert again.integrity == "checked"


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("UPDATE reading SET layer = 'first' WHERE rowid = 1", "readings hold values of another"),
        ("UPDATE reading SET value = 'high' WHERE rowid = 1", "readings hold values of another"),
        ("UPDATE reading SET quantity = 'q' WHERE rowid = 1", "a quantity that is not defined"),
        ("UPDATE provenance SET json = '{\"a\":' WHERE rowid = 1", "Expecting value"),
        (
            "UPDATE provenance SET json = replace(hex(zeroblob(200000)), '00', '[') "
            "WHERE rowid = 1",
            "recursion",
        ),
        ("UPDATE provenance SET json = CAST(x'22ff22' AS TEXT)", "decode"),
        ("UPDATE quantity SET lives_on = 'strem'", "'strem' stands where one of stream, sublayer"),
        ("UPDATE quantity SET scale = 'lin'", "'lin' stands where one of linear, log belongs"),
        (
            "UPDATE finding SET severity = 'grave'",
            "'grave' stands where one of serious, warning, note",
        ),
        ("ALTER TABLE reading RENAME COLUMN upper TO top", "the table reading has other columns"),
        ("DROP TABLE finding", "the table finding has other columns"),
    ],
)
def test_without_checksums_what_no_record_can_hold_is_refused(
    saved: Path, command: str, sentence: str
) -> None:
    _forget_checksums(saved)
    _edit(saved, command)
    with pytest.raises(RecordError, match=sentence):
        Record.open(saved)


def test_a_record_that_grows_is_unclosed_until_its_writer_closes_it(tmp_path: Path) -> None:
    path = tmp_path / "a.leadline"
    with Record.create(path) as writer:
        writer.describe(NORM)
        writer.append([_row(1)])
        with Record.open(path) as reader:
            assert reader.integrity == "unclosed"
    with Record.open(path) as reader:
        assert reader.integrity == "checked"
    with Record.reopen(path), Record.open(path) as reader:
        assert reader.integrity == "unclosed"
    with Record.open(path) as reader:
        assert reader.integrity == "checked"


def test_a_file_whose_writer_was_killed_is_unclosed_with_its_log_and_without(saved: Path) -> None:
    program = (
        "import os, sys; from leadline.record import *; r = Record.reopen(sys.argv[1]);"
        "r.note('more', 1); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", program, str(saved)], check=False)
    with Record.open(saved) as record:
        assert (record.integrity, record.provenance["more"]) == ("unclosed", 1)
    for beside in ("-wal", "-shm"):
        Path(f"{saved}{beside}").unlink(missing_ok=True)
    with Record.open(saved) as record:
        assert record.integrity == "unclosed"
        assert "more" not in record.provenance


def test_closing_under_a_reader_leaves_checksums_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.leadline"
    writer = Record.create(path)
    writer.describe(NORM)
    with Record.open(path):
        writer.append([_row(1)])
        writer.close()
    with Record.open(path) as again:
        assert again.integrity == "checked"


def test_every_value_is_told_from_its_neighbours(tmp_path: Path) -> None:
    """One reading alone, with values that are easily taken for each other: no two digests agree."""
    digests = set()
    values = (0.0, 1.0, math.nextafter(1.0, 2.0), math.inf, -math.inf, math.nan, 5e-324)
    for at, value in enumerate(values):
        for lower in (None, 0.0):
            path = tmp_path / f"{at}{lower}.leadline"
            record = Record()
            record.describe(NORM)
            record.append([Reading(NORM.name, Site("d", 1), "mean", value, lower)])
            record.save(path)
            with closing(sqlite3.connect(path)) as connection:
                query = "SELECT digest FROM checksum WHERE part = 'reading'"
                digests.add(connection.execute(query).fetchone()[0])
    assert len(digests) == 2 * len(values)


def test_texts_that_hold_the_separator_are_told_apart(tmp_path: Path) -> None:
    digests = set()
    for at, verdicts in enumerate((("a\0b", "c"), ("a", "b\0c"), ("a\0b\0c", ""))):
        path = tmp_path / f"{at}.leadline"
        record = Record()
        for verdict in verdicts:
            record.add_finding(Finding(verdict))
        record.save(path)
        with closing(sqlite3.connect(path)) as connection:
            query = "SELECT digest FROM checksum WHERE part = 'finding'"
            digests.add(connection.execute(query).fetchone()[0])
    assert len(digests) == 3


def test_a_full_disk_on_reopening_says_that_the_file_is_kept(saved: Path) -> None:
    with _full_disk(20_000), pytest.raises(RecordError) as caught:
        Record.reopen(saved)
    assert str(caught.value) == (
        f"Cannot write to the record {saved}: the disk is full or fails (disk I/O error). What it "
        "held before is kept; free some space and run the same command again to go on."
    )
    with Record.open(saved) as record:
        assert len(record) == len(gpt2_record())


def test_a_full_disk_on_closing_leaves_all_rows_in_an_unclosed_file(tmp_path: Path) -> None:
    path = tmp_path / "a.leadline"
    record = Record.create(path)
    record.describe(NORM)
    record.append(_row(layer) for layer in range(100))
    with _full_disk(1000):
        record.close()
    with Record.open(path) as again:
        assert (again.integrity, len(again)) == ("unclosed", 100)


def test_a_full_disk_on_saving_says_so_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "a.leadline"
    with (
        _full_disk(20_000),
        pytest.raises(
            RecordError, match=r"the disk is full or fails \(.*Free some space or choose"
        ),
    ):
        gpt2_record().save(path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only a fork shares what is open")
# Python 3.12 warns of a fork beside threads, which torch and pytest-xdist have started.
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_copy_does_not_close_the_record_of_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "a.leadline"
    record = Record.create(path)
    record.describe(NORM)
    child = os.fork()
    if child == 0:
        record.close()
        os._exit(0)
    os.waitpid(child, 0)
    record.append([_row(layer) for layer in range(5)])
    with Record.open(path) as reader:
        assert (reader.integrity, len(reader)) == ("unclosed", 5)
    record.close()
    with Record.open(path) as reader:
        assert (reader.integrity, len(reader)) == ("checked", 5)


def test_a_writer_that_goes_on_after_another_has_closed_the_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.leadline"
    writer = Record.create(path)
    writer.describe(NORM)
    # A program that asks for no lock, such as a version from before there was one.
    store.finish(sqlite3.connect(path), written=path, process=os.getpid())
    writer.append([_row(layer) for layer in range(3)])
    with Record.open(path) as reader:
        assert (reader.integrity, len(reader)) == ("unclosed", 3)
    writer.close()
    with Record.open(path) as reader:
        assert (reader.integrity, len(reader)) == ("checked", 3)


def test_a_writer_that_begins_while_a_file_is_checked_is_no_damage(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = checksum._digest_of_file
    writers: list[Record] = []

    def slow(*arguments: Any) -> bytes | None:
        monkeypatch.setattr(checksum, "_digest_of_file", digest)  # the writer checks it, too
        writers.append(Record.reopen(saved))
        writers[0].note("more", 1)
        return digest(*arguments)

    monkeypatch.setattr(checksum, "_digest_of_file", slow)
    with Record.open(saved) as reader:
        assert reader.integrity == "unclosed"
    writers[0].close()
