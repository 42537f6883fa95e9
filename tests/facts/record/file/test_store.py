"""The record file: what it keeps, what it refuses."""

from __future__ import annotations

import math
import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline.errors import RecordError
from leadline.record import Quantity, Reading, Record, Site
from leadline.record.file.schema import APPLICATION_ID, SCHEMA
from leadline.record.file.store import is_record_file
from leadline.record.rows.site import RUN
from tests.synthetic import gpt2_record

NORM = Quantity("stream.norm", "Norm", "|x|", "sqrt(sum x^2)")


def reading(layer: int = 1, value: float = 1.0, **rest: object) -> Reading:
    return Reading("stream.norm", Site("decoder", layer), "mean", value, **rest)  # pyright: ignore


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return gpt2_record().save(tmp_path / "gpt2.leadline")


def test_saved_record_comes_back_the_same(saved: Path) -> None:
    before = gpt2_record()
    with Record.open(saved) as after:
        assert after.select() == before.select()
        assert after.quantities == before.quantities
        assert after.provenance == before.provenance
        assert after.findings == before.findings
        assert str(after) == str(before)


numbers = st.floats(allow_nan=True, allow_infinity=True, width=64)
maybe = st.none() | st.integers(0, 2**40)


@given(
    st.lists(
        st.builds(
            Reading,
            quantity=st.just("stream.norm"),
            site=st.builds(
                Site,
                stack=st.text(max_size=5),
                layer=st.integers(0, 10_000),
                sublayer=maybe,
                point=st.sampled_from(["stream", "block", "mlp"]),
                lane=maybe,
                head=maybe,
                token=maybe,
                rank=maybe,
            ),
            statistic=st.sampled_from(["mean", "median", "value"]),
            value=numbers,
            lower=st.none() | st.floats(allow_nan=False),
            upper=st.none() | st.floats(allow_nan=False),
            run=st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
            step=st.integers(0, 2**40),
            seed=st.none() | st.integers(-(2**40), 2**40),
        )
    )
)
def test_every_reading_comes_back_as_it_was(readings: list[Reading]) -> None:
    with Record() as record:
        record.describe(NORM)
        record.append(readings)
        assert len(record) == len(readings)
        # repr tells NaN from None and keeps every digit; SQLite alone turns -0.0 into 0.0.
        assert repr(record.select()) == repr(readings).replace("=-0.0,", "=0.0,")


def test_nan_and_infinity_survive_the_file(tmp_path: Path) -> None:
    values = [math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, 0.1]
    path = tmp_path / "r.leadline"
    with Record() as record:
        record.describe(NORM)
        record.append(reading(layer, value) for layer, value in enumerate(values))
        record.save(path)
    with Record.open(path) as record:
        np.testing.assert_array_equal(np.asarray(record["stream.norm"]), values)


def test_numbers_of_numpy_are_kept_as_numbers() -> None:
    with Record() as record:
        record.describe(NORM)
        site = Site("decoder", np.int64(3), np.int32(1))  # pyright: ignore[reportArgumentType]
        row = Reading("stream.norm", site, "mean", np.float32(0.5), seed=np.int64(7))  # pyright: ignore[reportArgumentType]
        record.append([row])
        [found] = record.select()
        assert found == Reading("stream.norm", Site("decoder", 3, 1), "mean", 0.5, seed=7)
        assert [type(x) for x in (found.value, found.site.layer)] == [float, int]


@pytest.mark.parametrize(
    "command",
    ["UPDATE reading SET value = 0", "DELETE FROM reading", "DELETE FROM reading WHERE layer = 1"],
)
def test_readings_cannot_be_changed_even_by_other_programs(saved: Path, command: str) -> None:
    connection = sqlite3.connect(saved)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute(command)
    connection.close()
    with Record.open(saved) as record:
        assert len(record) == len(gpt2_record())


def test_append_takes_all_or_nothing() -> None:
    def readings() -> object:
        yield reading(1)
        yield reading(2)
        raise RuntimeError("the probe broke")

    with Record() as record:
        record.describe(NORM)
        record.append([reading(0)])
        with pytest.raises(RuntimeError, match="the probe broke"):
            record.append(readings())  # pyright: ignore[reportArgumentType]
        assert [found.site.layer for found in record.select()] == [0]


def test_file_says_what_it_is(saved: Path) -> None:
    connection = sqlite3.connect(saved)
    assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA,) == (2,)
    assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert APPLICATION_ID.to_bytes(4, "big") == b"LEAD"
    connection.close()
    assert is_record_file(saved)


def test_other_files_are_not_records(tmp_path: Path) -> None:
    text = tmp_path / "a.txt"
    text.write_text("hello")
    other = tmp_path / "b.db"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    assert not is_record_file(text)
    assert not is_record_file(other)
    assert not is_record_file(tmp_path / "absent")
    assert not is_record_file(tmp_path)
    with pytest.raises(RecordError, match=r"a\.txt is not a Leadline record: it is not an SQLite"):
        Record.open(text)
    with pytest.raises(RecordError, match=r"b\.db is an SQLite file, but not a Leadline record"):
        Record.open(other)
    with pytest.raises(RecordError, match=r"There is no record at .*absent: no such file"):
        Record.open(tmp_path / "absent")
    with pytest.raises(RecordError, match="Is a directory"):
        Record.open(tmp_path)


def _set_schema(path: Path, schema: int) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {schema}")
    connection.close()


def test_newer_schema_is_refused(saved: Path) -> None:
    _set_schema(saved, 3)
    with pytest.raises(RecordError) as caught:
        Record.open(saved)
    assert str(caught.value) == (
        f"{saved} was written by a newer leadline (schema 3, this one reads 2): "
        "upgrade leadline to read it."
    )


def test_a_schema_that_never_was_is_refused(saved: Path) -> None:
    _set_schema(saved, 0)
    with pytest.raises(RecordError, match=r"its schema is 0, and the first one was 1"):
        Record.open(saved)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.03, 0.3, 0.6, 0.95])
def test_truncated_file_is_refused(saved: Path, share: float) -> None:
    whole = saved.read_bytes()
    saved.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(RecordError, match=r"not a Leadline record|damaged or cut short"):
        Record.open(saved)


def test_overwritten_middle_is_refused(saved: Path) -> None:
    whole = bytearray(saved.read_bytes())
    for at in range(4096, len(whole), 4096):
        whole[at : at + 2048] = os.urandom(2048)
    saved.write_bytes(whole)
    with pytest.raises(RecordError, match="damaged or cut short"):
        Record.open(saved)


def test_opening_leaves_nothing_beside_the_file(saved: Path) -> None:
    before = saved.read_bytes()
    with Record.open(saved) as record:
        str(record)
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]
    assert saved.read_bytes() == before


def test_opened_record_takes_no_rows(saved: Path) -> None:
    with Record.open(saved) as record:
        for write in (
            lambda: record.append([reading()]),
            lambda: record.note("k", 1),
            lambda: record.describe(Quantity("new", "", "", "")),
        ):
            with pytest.raises(RecordError, match="opened for reading"):
                write()


def test_closed_record_says_so() -> None:
    record = gpt2_record()
    record.close()
    record.close()
    with pytest.raises(RecordError, match="This record is closed"):
        str(record)


def test_unwritable_places_are_refused(tmp_path: Path) -> None:
    record = gpt2_record()
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "no" / "folder.leadline", tmp_path / "file" / "r.leadline", tmp_path):
        with pytest.raises(RecordError, match="Cannot write the record"):
            record.save(path)
        with pytest.raises(RecordError, match="Cannot"):
            Record.create(path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_read_only_folder_is_refused_for_writing_and_fine_for_reading(saved: Path) -> None:
    saved.parent.chmod(0o555)
    try:
        with pytest.raises(RecordError, match="Permission denied"):
            gpt2_record().save(saved.parent / "other.leadline")
        with Record.open(saved) as record:
            assert len(record) == len(gpt2_record())
    finally:
        saved.parent.chmod(0o755)


def test_failed_save_keeps_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def broken_replace(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", broken_replace)
    with pytest.raises(RecordError, match="No space left on device"):
        gpt2_record(depth=4).save(saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_save_replaces_a_file_and_follows_a_link(saved: Path) -> None:
    link = saved.with_name("link.leadline")
    link.symlink_to(saved)
    gpt2_record(depth=4).save(link)
    assert link.is_symlink()
    with Record.open(saved) as record:
        assert record.depth() == 4


def test_create_does_not_overwrite(saved: Path) -> None:
    with pytest.raises(RecordError, match="the file exists already"):
        Record.create(saved)


def test_growing_record_is_read_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "live.leadline"
    with Record.create(path) as writer:
        writer.describe(NORM)
        writer.append([reading(0, 1.0)])
        with Record.open(path) as reader:
            assert len(reader) == 1
            writer.append([reading(1, 2.0), reading(2, 4.0)])
            assert np.asarray(reader["stream.norm"]).tolist() == [1.0, 2.0, 4.0]
    assert [found.name for found in tmp_path.iterdir()] == ["live.leadline"]


def test_another_process_reads_while_this_one_writes(tmp_path: Path) -> None:
    path = tmp_path / "live.leadline"
    program = (
        "import sys; from leadline.record import Record;"
        "print([r.value for r in Record.open(sys.argv[1]).select()])"
    )
    with Record.create(path) as writer:
        writer.describe(NORM)
        for layer in range(3):
            writer.append([reading(layer, layer + 0.5)])
            seen = subprocess.run(
                [sys.executable, "-c", program, str(path)],
                capture_output=True,
                text=True,
                check=True,
            )
            assert seen.stdout.strip() == str([at + 0.5 for at in range(layer + 1)])


def test_rows_of_a_writer_that_was_killed_are_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "live.leadline"
    program = (
        "import os, sys; from leadline.record import *;"
        "r = Record.create(sys.argv[1]); r.describe(Quantity('q', '', '', ''));"
        "r.append([Reading('q', Site('d', 1), 'mean', 2.5)]); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert path.with_name("live.leadline-wal").exists()
    with Record.open(path) as record:
        assert record.select()[0].value == 2.5
        with pytest.raises(RecordError, match="still being written, or was never closed"):
            gpt2_record().save(path)
        record.save(tmp_path / "copy.leadline")
    with Record.open(tmp_path / "copy.leadline") as copy:
        assert len(copy) == 1


def test_closing_a_writer_under_a_reader_keeps_all_rows(tmp_path: Path) -> None:
    path = tmp_path / "live.leadline"
    writer = Record.create(path)
    writer.describe(NORM)
    with Record.open(path) as reader:
        writer.append([reading(1, 3.0)])
        writer.close()
        assert reader.select()[0].value == 3.0
    with Record.open(path) as again:
        assert len(again) == 1


def test_saving_a_growing_record_to_its_own_place_folds_its_log(tmp_path: Path) -> None:
    path = tmp_path / "live.leadline"
    with Record.create(path) as record:
        record.describe(NORM)
        record.append([reading()])
        record.save(path)
        assert path.with_name("live.leadline-wal").stat().st_size == 0
        record.append([reading(2)])
    with Record.open(path) as again:
        assert len(again) == 2


def test_record_that_is_forgotten_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "live.leadline"
    record = Record.create(path)
    record.describe(NORM)
    del record
    assert [found.name for found in tmp_path.iterdir()] == ["live.leadline"]


def test_names_with_odd_letters_are_paths_like_others(tmp_path: Path) -> None:
    path = tmp_path / "50% of #1?mode=x ü.leadline"
    gpt2_record(depth=4).save(path)
    with Record.open(path) as record:
        assert record.depth() == 4


def test_a_device_is_not_replaced_by_a_record() -> None:
    with pytest.raises(RecordError, match="not a regular file"):
        Record().save("/dev/null")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_record_is_opened_again_to_add_to_it(saved: Path) -> None:
    before = Record.open(saved).select()
    with Record.reopen(saved) as record:
        record.append([reading(2, 7.0)])
    with Record.open(saved) as after:
        assert after.select() == [*before, reading(2, 7.0)]
    assert not Path(f"{saved}-wal").exists()


def test_what_is_no_record_is_not_opened_again(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("text")
    with pytest.raises(RecordError, match="not an SQLite file"):
        Record.reopen(tmp_path / "x")


def test_what_belongs_together_is_kept_as_a_whole_or_not_at_all() -> None:
    record = Record()
    with record.together():
        record.describe(NORM)
        record.append([reading(1)])
        record.note("outcome", "done")
    assert (len(record), record.provenance) == (1, {"outcome": "done"})

    def broken() -> None:
        with record.together():
            record.append([reading(2)])
            record.note("outcome", "lost")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    assert (len(record), record.provenance) == (1, {"outcome": "done"})
    record.append([reading(3)])
    assert len(record) == 2


def test_a_writer_that_is_killed_leaves_what_it_had_committed(tmp_path: Path) -> None:
    script = """
import os, signal, sys
from leadline.record import Quantity, Reading, Record, Site
record = Record.create(sys.argv[1])
record.describe(Quantity("stream.norm", "Norm", "|x|", "sqrt(sum x^2)"))
with record.together():
    record.append([Reading("stream.norm", Site("decoder", 1), "mean", 1.0)])
with record.together():
    record.append([Reading("stream.norm", Site("decoder", 2), "mean", 2.0)])
    os.kill(os.getpid(), signal.SIGKILL)
"""
    path = tmp_path / "killed.leadline"
    subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    with Record.reopen(path) as record:
        assert [found.value for found in record.select()] == [1.0]
        record.append([reading(2, 3.0)])
    with Record.open(path) as record:
        assert [found.value for found in record.select()] == [1.0, 3.0]


def test_numbers_of_a_run_belong_to_no_stack() -> None:
    record = Record()
    record.describe(NORM)
    record.append([Reading("stream.norm", RUN, "value", 1.0), reading(1)])
    assert record.stacks == ["decoder"]
    assert str(RUN) == "the run"


def test_a_named_pipe_is_refused_and_never_waited_for(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(RecordError, match="is no regular file"):
        Record.open(pipe)
    with pytest.raises(RecordError, match="the file exists already"):
        Record.create(pipe)


def test_an_empty_file_is_taken(tmp_path):
    path = tmp_path / "empty"
    path.touch()
    Record.create(path).close()
    assert Record.open(path).integrity == "checked"
