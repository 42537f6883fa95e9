"""No test leaves a process, and no test waits for the clock."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import children, wait_for

ROOT = Path(__file__).parents[2]
FOREVER = [sys.executable, "-c", "import threading; threading.Event().wait()"]


def test_a_test_that_leaves_a_process_fails_and_the_process_is_ended(tmp_path):
    file = tmp_path / "test_leaving.py"
    file.write_text(
        "import subprocess\n"
        "kept = []\n"
        "def test_leaving():\n"
        f"    kept.append(subprocess.Popen({FOREVER}))\n"
        "def test_after_it():\n"
        "    assert kept[0].poll() is not None\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--confcutdir", str(tmp_path), str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ERROR at teardown of test_leaving" in done.stdout, done.stdout + done.stderr
    assert "the test left 1 of its processes behind" in done.stdout
    assert "2 passed, 1 error" in done.stdout


def test_a_process_is_seen_until_it_was_waited_for(start):
    assert children() == []
    process = start([sys.executable, "-c", ""])
    assert [one.pid for one in children()] == [process.pid]
    process.wait()
    assert children() == []


def test_a_process_that_ends_before_what_is_waited_for_is_told_at_once(start):
    process = start([sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(AssertionError, match="ended with exit code 3"):
        wait_for(lambda: False, of=process)
