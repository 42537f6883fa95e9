"""Copies of files whose locks are of no use: of one moment, and the file stays as it is."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from leadline.record import Record
from leadline.record.file import snapshot
from leadline.record.file.snapshot import copy_of_file, uses_write_ahead_log
from leadline.record.file.writer import RecordWriter, writer_of
from tests.processes import wait_for
from tests.synthetic_watch import Course, growing_file, readings, write_sample

ROOT = Path(__file__).parents[4]
SMALL = Course(layers=3, samples=40, every=5)
CUT_OFF = """
import sys
from tests.synthetic_watch import Course, growing_file, write_sample
course = Course(layers=3, samples=400, every=5)
record = growing_file(sys.argv[1], course)
write_sample(record, course, 0)
write_sample(record, course, 1)
record._connection.execute("PRAGMA cache_size = 5")  # so that pages are written before the commit
with record.together():
    for sample in range(2, 60):
        write_sample(record, course, sample)
    print("inside", flush=True)
    sys.stdin.read()
"""


def files_of(path: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in sorted(path.parent.iterdir())}


def rows_of(count: int, course: Course) -> int:
    """How many rows the first samples of a course have."""
    return sum(len(list(readings(course, course.step_of(one)))) for one in range(count)) + (
        course.step_of(count - 1) if count else 0
    )


@pytest.fixture
def cut_off(tmp_path, start):
    """A file whose writer was killed in the middle of its third transaction."""
    path = tmp_path / "run.leadline"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = start([sys.executable, "-c", CUT_OFF, str(path)], cwd=ROOT, **pipes)
    assert process.stdout.readline() == "inside\n"
    process.kill()
    process.wait()
    assert Path(f"{path}-journal").stat().st_size > 0
    return path


def test_a_reader_sees_what_was_committed_before_the_writer_was_killed(cut_off):
    before = files_of(cut_off)
    with Record.open(cut_off) as record:
        assert len(record) == rows_of(2, Course(layers=3, samples=400, every=5))
        assert record.integrity == "unclosed"
        assert record.provenance["watch"]["steps"] == 5
    assert files_of(cut_off) == before  # the journal is still there for the next writer


def test_the_next_writer_goes_on_from_there(cut_off):
    with Record.reopen(cut_off, journal="delete") as record:
        write_sample(record, Course(layers=3, samples=400, every=5), 2)
    with Record.open(cut_off) as record:
        assert record.integrity == "checked"
        assert record.provenance["watch"]["steps"] == 10


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_every_copy_of_a_file_that_is_written_holds_whole_transactions(tmp_path, start, journal):
    path = tmp_path / "run.leadline"
    command = [sys.executable, "-m", "tests.synthetic_watch", str(path), "--journal", journal]
    process = start(
        [*command, "--layers", "3", "--samples", "60", "--every", "5"],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    course = Course(layers=3, samples=60, every=5)
    whole = {rows_of(count, course) for count in range(61)}
    seen = []
    while process.poll() is None and len(seen) < 200:
        try:
            copy = copy_of_file(path)
        except sqlite3.OperationalError:  # the writer did not rest
            continue
        with closing(copy):
            seen.append(copy.execute("SELECT count(*) FROM reading").fetchone()[0])
            assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert set(seen) <= whole
    assert seen == sorted(seen)
    process.stdout.read()
    wait_for(lambda: process.poll() is not None)
    with closing(copy_of_file(path)) as copy:
        assert copy.execute("SELECT count(*) FROM reading").fetchone() == (rows_of(60, course),)


def test_a_file_that_never_rests_is_busy(tmp_path, monkeypatch):
    path = tmp_path / "run.leadline"
    with growing_file(path, SMALL):
        monkeypatch.setattr(snapshot, "PAUSE", 0.0)
        states = iter(range(1000))
        monkeypatch.setattr(snapshot, "_state", lambda _: next(states))
        with pytest.raises(sqlite3.OperationalError, match="without a pause") as refused:
            copy_of_file(path)
    assert refused.value.sqlite_errorcode == sqlite3.SQLITE_BUSY
    assert next(states) == 2 * snapshot.TRIES == 40


def test_the_header_says_whether_there_is_a_log(tmp_path):
    with growing_file(tmp_path / "a.leadline", SMALL, journal="wal"):
        assert uses_write_ahead_log(tmp_path / "a.leadline")
    assert not uses_write_ahead_log(tmp_path / "a.leadline")
    with growing_file(tmp_path / "b.leadline", SMALL, journal="delete"):
        assert not uses_write_ahead_log(tmp_path / "b.leadline")
    assert not uses_write_ahead_log(tmp_path / "c.leadline")


def test_a_log_of_another_machine_is_read_from_a_copy(tmp_path):
    path = tmp_path / "run.leadline"
    with growing_file(path, SMALL, journal="wal") as writing:
        write_sample(writing, SMALL, 0)
        beside = Path(f"{path}.writer")
        mine = beside.read_text()
        beside.write_text("77\nelsewhere\n2026-11-01 10:00:00\n")
        before = files_of(path)
        with Record.open(path) as record:
            assert len(record) == rows_of(1, SMALL)
            assert record._connection.execute("PRAGMA database_list").fetchone()[2] == ""
        assert files_of(path) == before
        beside.write_text(mine)


def test_a_file_that_is_locked_for_long_is_not_read_as_if_it_were_at_rest(tmp_path, monkeypatch):
    path = tmp_path / "run.leadline"
    with growing_file(path, SMALL) as writing:
        write_sample(writing, SMALL, 0)
    connect = sqlite3.connect

    def impatient(*arguments, **options):
        return connect(*arguments, **{**options, "timeout": 0.0})

    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        monkeypatch.setattr(sqlite3, "connect", impatient)
        from leadline.errors import RecordError

        with pytest.raises(RecordError, match="database is locked"):
            Record.open(path)


def test_a_writer_is_named_with_its_machine(tmp_path):
    path = tmp_path / "run.leadline"
    assert writer_of(path) is None
    with growing_file(path, SMALL):
        writer = writer_of(path)
        assert (writer.process, writer.here, writer.lives) == (os.getpid(), True, True)
        assert str(writer) == f"process {os.getpid()}"
    assert writer_of(path) is None


def test_a_writer_elsewhere_cannot_be_asked_and_one_that_was_killed_is_gone(start):
    away = RecordWriter(77, "elsewhere", "")
    assert (away.here, away.lives, str(away)) == (False, None, "process 77 on elsewhere")
    process = start([sys.executable, "-c", ""])
    process.wait()
    import platform

    assert RecordWriter(process.pid, platform.node(), "").lives is False
    assert RecordWriter(1, platform.node(), "").lives is True
