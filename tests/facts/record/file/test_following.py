"""A file that grows is followed: new rows alone, and never in the writer's way."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from leadline.errors import RecordError
from leadline.record import Record
from leadline.record.file import following
from leadline.record.file.following import FollowedFile
from tests.synthetic import gpt2_record
from tests.synthetic_watch import Course, growing_file, note_progress, readings, write_sample

SMALL = Course(layers=3, samples=40, every=5)


def summaries(course: Course, sample: int) -> int:
    """How many rows of a sample have the headline statistic and no head; with those of the loss."""
    rows = list(readings(course, course.step_of(sample)))
    kept = [row for row in rows if row.statistic != "median" and row.site.head is None]
    before = 0 if sample == 0 else course.step_of(sample - 1)
    return len(kept) + course.step_of(sample) - before


def count_of(followed: FollowedFile) -> int:
    """How many rows the last look has brought."""
    return sum(len(line.steps) for line in followed.fresh)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.leadline"


def test_a_file_that_is_not_there_is_missing_and_an_empty_one_is_about_to_start(path):
    followed = FollowedFile(path)
    assert followed.look() == "missing"
    path.touch()
    assert followed.look() == "starting"
    path.unlink()
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 0")
        database.execute("VACUUM")
    assert followed.look() == "starting"


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_every_look_brings_what_is_new(path, journal):
    followed = FollowedFile(path)
    with growing_file(path, SMALL, journal=journal) as record:
        assert followed.look() == "read"
        assert followed.fresh == []
        write_sample(record, SMALL, 0)
        assert followed.look() == "read"
        assert count_of(followed) == summaries(SMALL, 0)
        write_sample(record, SMALL, 1)
        write_sample(record, SMALL, 2)
        followed.look()
        assert count_of(followed) == summaries(SMALL, 1) + summaries(SMALL, 2)
        assert {step for line in followed.fresh for step in line.steps} == set(range(2, 11))
        followed.look()
        assert followed.fresh == []
        assert followed.provenance["watch"]["steps"] == 10
        assert not followed.closed
    followed.look()
    assert followed.closed


def test_a_look_leaves_the_writer_free_to_close_its_log(path):
    followed = FollowedFile(path)
    with growing_file(path, SMALL, journal="wal") as record:
        write_sample(record, SMALL, 0)
        followed.look()
    assert not Path(f"{path}-wal").exists()
    with Record.open(path) as record:
        assert record.integrity == "checked"


def test_rows_are_read_in_portions(path, monkeypatch):
    assert following.PORTION == 20_000
    monkeypatch.setattr(following, "PORTION", 50)
    followed = FollowedFile(path)
    with growing_file(path, SMALL) as record:
        for sample in range(5):
            write_sample(record, SMALL, sample)
        followed.look()
        assert count_of(followed) == sum(summaries(SMALL, sample) for sample in range(5))


def test_a_locked_file_is_busy_and_read_later(path, monkeypatch):
    assert following.TIMEOUT == 0.5
    monkeypatch.setattr(following, "TIMEOUT", 0.0)
    followed = FollowedFile(path)
    with growing_file(path, SMALL) as record:
        write_sample(record, SMALL, 0)
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert followed.look() == "busy"
        assert followed.fresh == []
        other.rollback()
        assert followed.look() == "read"
        assert count_of(followed) == summaries(SMALL, 0)


def test_findings_come_with_the_rows(path):
    course = Course(layers=3, samples=12, every=5)
    followed = FollowedFile(path)
    with growing_file(path, course) as record:
        for sample in range(12):
            write_sample(record, course, sample)
    followed.look()
    assert [finding.code for finding in followed.findings] == ["G91", "G90"]


def test_another_file_of_the_same_name_is_read_from_its_beginning(path):
    followed = FollowedFile(path)
    with growing_file(path, SMALL) as record:
        for sample in range(3):
            write_sample(record, SMALL, sample)
    followed.look()
    kept = path.rename(path.with_name("older.leadline"))  # keeps its inode, so no other has it
    assert kept.exists()
    with growing_file(path, SMALL) as record:
        write_sample(record, SMALL, 0)
        assert followed.look() == "read"
    assert followed.again
    assert count_of(followed) == summaries(SMALL, 0)
    followed.look()
    assert not followed.again


def test_what_is_no_record_is_refused(path):
    path.write_text("a text, and no database; long enough to have a header of a hundred bytes" * 3)
    with pytest.raises(RecordError, match="not a Leadline record"):
        FollowedFile(path).look()


def test_a_file_that_stays_unreadable_is_damaged(path):
    assert following.PATIENCE == 3
    gpt2_record().save(path)
    data = bytearray(path.read_bytes())
    data[100:4000] = bytes(3900)  # the schema of the database
    path.write_bytes(data)
    followed = FollowedFile(path)
    assert [followed.look(), followed.look()] == ["busy", "busy"]
    with pytest.raises(RecordError, match="damaged"):
        followed.look()


def test_a_closed_file_of_any_writer_is_read_at_once(path):
    gpt2_record().save(path)
    followed = FollowedFile(path)
    assert followed.look() == "read"
    assert followed.closed
    assert "stream.norm" in followed.quantities
    [norm] = [
        line for line in followed.fresh
        if (line.quantity, line.site.layer, line.site.sublayer) == ("stream.norm", 7, None)
    ]  # fmt: skip
    with Record.open(path) as record:
        assert norm.values == (record["stream.norm"].values[7],)


def test_progress_without_rows_is_seen(path):
    followed = FollowedFile(path)
    with growing_file(path, SMALL) as record:
        write_sample(record, SMALL, 0)
        followed.look()
        note_progress(record, SMALL, step=3)
        followed.look()
        assert followed.fresh == []
        assert followed.provenance["watch"]["steps"] == 3
