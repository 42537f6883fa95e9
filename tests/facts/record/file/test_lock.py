"""One writer at a time, and no lock is left behind, however a writer ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from leadline.errors import RecordError
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
