"""One writer at a time, and no lock is left behind, however a writer ends."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from leadline.errors import RecordError
from leadline.record import Record
from leadline.record.file.lock import only_writer, take_lock


def test_a_second_writer_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "a.leadline"
    with only_writer(path):
        with pytest.raises(RecordError, match="Another measurement is at work"), only_writer(path):
            pass
        assert [p.name for p in tmp_path.iterdir()] == ["a.leadline.lock"]
    assert list(tmp_path.iterdir()) == []
    with only_writer(path):
        pass


def test_an_error_inside_lets_go_of_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "a.leadline"
    with pytest.raises(ValueError, match="inside"), only_writer(path):
        raise ValueError("inside")
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.leadline"
    script = (
        "import os, signal\nfrom pathlib import Path\n"
        "from leadline.record.file.lock import only_writer\n"
        f"with only_writer(Path({str(path)!r})):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=False)
    assert (tmp_path / "a.leadline.lock").exists()
    with only_writer(path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_lock_is_taken_once(tmp_path: Path) -> None:
    first = take_lock(tmp_path / "folder" / "lock")
    assert first is not None
    assert take_lock(tmp_path / "folder" / "lock") is None
    first.close()


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(RecordError, match="cannot be written"),
        only_writer(tmp_path / "file" / "a.leadline"),
    ):
        pass


def test_a_record_that_this_process_writes_is_not_opened_to_write_again(tmp_path: Path) -> None:
    path = tmp_path / "a.leadline"
    with Record.create(path) as first:
        with pytest.raises(RecordError, match=r"in this process already.*record\.close\(\)"):
            Record.reopen(path)
        first.note("who", "the first writer")  # it goes on unharmed
        with Record.open(path) as reader:
            assert reader.provenance == {"who": "the first writer"}
    assert [p.name for p in tmp_path.iterdir()] == ["a.leadline"]
    with Record.reopen(path) as second:
        second.note("who", "the second writer")
        with pytest.raises(RecordError, match="in this process already"):
            Record.reopen(path)
    with Record.open(path) as reader:
        assert (reader.provenance, reader.integrity) == ({"who": "the second writer"}, "checked")


def test_a_second_writer_is_told_which_process_writes(tmp_path: Path, start: Any) -> None:
    path = tmp_path / "a.leadline"
    script = (
        "import sys\nfrom leadline.record import Record\n"
        f"record = Record.create({str(path)!r})\n"
        "record.note('who', 'the other process')\nprint('ready', flush=True)\nsys.stdin.read()\n"
    )
    writer = start(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout.readline() == "ready\n"
    sentence = rf"Process {writer.pid} on {re.escape(platform.node())} has been writing.*wait until"
    with pytest.raises(RecordError, match=sentence):
        Record.reopen(path)
    writer.kill()
    writer.communicate()
    with Record.reopen(path) as record:  # a writer that was killed holds nothing
        assert record.provenance == {"who": "the other process"}
    assert [p.name for p in tmp_path.iterdir()] == ["a.leadline"]


def test_a_link_to_a_record_is_the_record(tmp_path: Path) -> None:
    path, link = tmp_path / "a.leadline", tmp_path / "b.leadline"
    link.symlink_to(path)
    with Record.create(path), pytest.raises(RecordError, match="in this process already"):
        Record.reopen(link)
