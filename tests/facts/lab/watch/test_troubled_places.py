"""What users hand to a watch may fail, and so may the place that it writes to: training goes on."""

import os
import resource
import sqlite3
from contextlib import contextmanager

import pytest
import torch

from leadline.errors import TrainingStopped
from leadline.instruments.passes.probes import PROBES
from leadline.instruments.passes.probes.rank import RankProbe
from leadline.lab.watch import writer
from leadline.lab.watch.watch import watch
from leadline.reading.watch.alarm import ALARMS, Alarm
from leadline.record import Record
from leadline.record.file import store
from tests.twin_runs import batches, rows_of, run_twice, train
from tests.watched import tiny_gpt2


def loop(run):
    model = tiny_gpt2()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    run.watch(model, optimizer)
    train(run, model, optimizer, batches())


def fail(*args, **kwargs):
    raise RuntimeError("injected")


def ring(history):
    yield _ALARM.warning("It rings.", step=history.step, since=1, quantity="train.loss")


_ALARM = Alarm(
    code="G99", name="test-ringing", severity="serious", needs=("train.loss",), look=ring,
    summary="It rings.", why="It rings.", is_not="It rings.", do_now="Nothing.", sources=(),
)  # fmt: skip


@pytest.fixture
def ringing(monkeypatch):
    """An alarm that rings at once."""
    monkeypatch.setitem(ALARMS._entries, "test-ringing", _ALARM)


class Broken:
    """A sink that fails."""

    write = warn = close = fail


def test_a_function_for_warnings_that_raises(tmp_path, ringing):
    plain, watched = run_twice(loop, tmp_path, on_warning=fail)
    assert watched.differences(plain) == []
    assert "on_warning failed: RuntimeError: injected" in watched.watcher.notes[0]
    assert [one.code for one in watched.watcher.warnings][:1] == ["G99"]
    assert sorted(rows_of(watched.path, "stream.norm")) == [1, 2, 3, 4, 5]  # no sample is lost
    with Record.open(watched.path) as record:
        assert "G99" in [one.code for one in record.findings]


def test_an_alarm_that_raises_is_named(tmp_path, monkeypatch):
    broken = Alarm(**{**vars(_ALARM), "look": fail})
    monkeypatch.setitem(ALARMS._entries, "test-ringing", broken)
    plain, watched = run_twice(loop, tmp_path)
    assert watched.differences(plain) == []
    assert watched.watcher.notes == ["The alarm G99 test-ringing failed: RuntimeError: injected"]


def test_a_sink_that_raises(tmp_path, ringing):
    plain, watched = run_twice(loop, tmp_path, sinks=[Broken()])
    assert watched.differences(plain) == []
    assert any("injected" in note and "sink" in note for note in watched.watcher.notes)
    assert sorted(rows_of(watched.path, "stream.norm")) == [1, 2, 3, 4, 5]


def test_a_probe_that_raises_leaves_weights_and_losses(tmp_path, monkeypatch):
    monkeypatch.setattr(RankProbe, "stream", fail)
    assert "rank" in dict(PROBES.items())
    plain, watched = run_twice(loop, tmp_path, probes="rank")
    assert watched.differences(plain) == []
    assert "A probe failed: RuntimeError: injected" in watched.watcher.notes[0]
    assert sorted(rows_of(watched.path, "weights.update_ratio")) == [1, 2, 3, 4, 5]
    assert rows_of(watched.path, "stream.norm") == {}


def test_a_serious_warning_stops_the_training_where_that_is_asked_for(tmp_path, ringing):
    model = tiny_gpt2()
    optimizer = torch.optim.AdamW(model.parameters())
    with watch(model, optimizer, tmp_path / "a", every=2, stop=True, quiet=True) as one:
        (batch,) = batches(1)
        model(**batch).loss.backward()
        with pytest.raises(TrainingStopped, match="G99 test-ringing: It rings"):
            optimizer.step()
        assert one.should_stop
        optimizer.step()  # it is said once
    assert one.step == 2


# --- where it writes -----------------------------------------------------------------------------


def test_a_disk_that_fills_up_and_has_room_again(tmp_path):
    """SQLite says "database or disk is full" where a file may not grow."""
    model = tiny_gpt2()
    optimizer = torch.optim.AdamW(model.parameters())
    with watch(model, optimizer, tmp_path / "a.leadline", every=1, quiet=True) as one:
        connection = one.record._connection
        for at, batch in enumerate(batches(), start=1):
            if at == 2:
                pages = connection.execute("PRAGMA page_count").fetchone()[0]
                connection.execute(f"PRAGMA max_page_count = {pages}")
            if at == 4:
                connection.execute("PRAGMA max_page_count = 1000000")
            model(**batch).loss.backward()
            optimizer.step()
    assert any("full" in note and "kept and written later" in note for note in one.notes)
    assert sorted(rows_of(one.path, "stream.norm")) == [1, 2, 3, 4, 5]
    assert sorted(rows_of(one.path, "train.loss")) == [1, 2, 3, 4, 5]


@contextmanager
def files_of_at_most(size):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_disk_without_room_for_anything(tmp_path):
    with files_of_at_most(40_000):
        plain, watched = run_twice(loop, tmp_path, snapshot=True)
    assert watched.differences(plain) == []
    assert watched.watcher.notes


def test_a_record_that_a_reader_holds(tmp_path, monkeypatch):
    """A reader in the middle of a look keeps a file with a rollback journal from being written."""
    monkeypatch.setattr(writer, "LAST_PATIENCE", 0.2)
    model = tiny_gpt2()
    optimizer = torch.optim.AdamW(model.parameters())
    with watch(model, optimizer, tmp_path / "a.leadline", every=1, quiet=True) as one:
        for at, batch in enumerate(batches(), start=1):
            if at == 2:
                reader = sqlite3.connect(one.path, isolation_level=None)
                reader.execute("BEGIN")
                reader.execute("SELECT count(*) FROM reading").fetchall()
            if at == 5:
                reader.execute("COMMIT")
                reader.close()
            model(**batch).loss.backward()
            optimizer.step()
    assert any("locked" in note and "kept and written later" in note for note in one.notes)
    assert sorted(rows_of(one.path, "stream.norm")) == [1, 2, 3, 4, 5]


def test_a_reader_that_holds_the_record_from_the_first_update_to_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "LAST_PATIENCE", 0.2)
    model = tiny_gpt2()
    optimizer = torch.optim.AdamW(model.parameters())
    one = watch(model, optimizer, tmp_path / "a.leadline", every=1, quiet=True)
    reader = sqlite3.connect(one.path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM reading").fetchall()
    for batch in batches(2):
        model(**batch).loss.backward()
        optimizer.step()
    one.close()
    reader.close()
    assert one.step == 2
    assert any("are lost" in note for note in one.notes)
    with Record.open(one.path) as record:
        assert len(record) == 0


def test_a_wait_for_a_reader_is_short():
    assert writer.PATIENCE == 0.1
    assert writer.LAST_PATIENCE == 5.0
    assert writer.MOST_PENDING == 200_000


def test_rows_that_cannot_be_written_do_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "MOST_PENDING", 100)
    model = tiny_gpt2()
    optimizer = torch.optim.AdamW(model.parameters())
    with watch(model, optimizer, tmp_path / "a.leadline", every=1, quiet=True) as one:
        pages = one.record._connection.execute("PRAGMA page_count").fetchone()[0]
        one.record._connection.execute(f"PRAGMA max_page_count = {pages}")
        for batch in batches():
            model(**batch).loss.backward()
            optimizer.step()
            assert len(one._course._writer._pending) <= 200
    assert any("Rows were lost" in note for note in one.notes)


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    if os.geteuid() == 0:  # whom no permission stops

        def refuse(path, **options):
            raise store.cannot_save(path, PermissionError(13, "Permission denied"))

        monkeypatch.setattr(store, "create_file", refuse)
    model = tiny_gpt2()
    optimizer = torch.optim.AdamW(model.parameters())
    with watch(model, optimizer, folder / "a.leadline", quiet=True) as one:
        model(**batches(1)[0]).loss.backward()
        optimizer.step()
    assert not one.active
    assert "Permission denied" in one.notes[0]
    assert "The run is not watched; training continues." in one.notes[0]


def test_a_record_that_is_removed_while_it_is_written(tmp_path):
    model = tiny_gpt2()
    optimizer = torch.optim.AdamW(model.parameters())
    with watch(model, optimizer, tmp_path / "a.leadline", every=1, quiet=True) as one:
        for at, batch in enumerate(batches()):
            if at == 2:
                (tmp_path / "a.leadline").unlink()
            model(**batch).loss.backward()
            optimizer.step()
    assert one.step == 5
