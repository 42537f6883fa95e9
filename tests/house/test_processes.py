"""No test leaves a process, and no test waits for the clock."""

import ast
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import children, wait_for

ROOT = Path(__file__).parents[2]
FOREVER = [sys.executable, "-c", "import threading; threading.Event().wait()"]
PIPES = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | {"text": True}
ABOUT_TIME = {
    "processes.py": "waits for events",
    "conftest.py": "starts processes that end with the test",
    "facts/lab/test_killed_sweeps.py": "kills at random moments, whatever has happened by then",
    "facts/web/server/stand_in.py": "hangs or is slow, so that a server has to deal with it",
    "ray_cluster.py": "starts a cluster, which a fixture ends",
    "agreement/test_jacobians_real_models.py": "says how long a trained model takes",
    "agreement/test_paths_real_models.py": "says how long a trained model takes",
}
CALLS = {
    "time.sleep": "wait for what happens, with tests.processes.wait_for",
    "time.perf_counter": "count operations, give the code a clock, or write a benchmark",
    "time.monotonic": "count operations, give the code a clock, or write a benchmark",
    "time.time": "count operations, give the code a clock, or write a benchmark",
    "subprocess.Popen": "use the fixture `start`, which ends the process with the test",
}


def test_no_test_asks_the_clock_or_starts_a_process_that_nobody_ends():
    folder = ROOT / "tests"
    for file in sorted(folder.rglob("*.py")):
        name = file.relative_to(folder).as_posix()
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for call in ast.walk(tree):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                continue
            function = ast.unparse(call.func)
            assert function not in CALLS or name in ABOUT_TIME, (
                f"{name}:{call.lineno} calls {function}: {CALLS[function]}"
            )


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


def test_a_process_can_be_interrupted_even_if_the_tests_cannot(start):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = start([sys.executable, "-c", "print(flush=True); input()"], **PIPES)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in process.communicate()[1]


def test_a_process_that_ends_before_what_is_waited_for_is_told_at_once(start):
    process = start([sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(AssertionError, match="ended with exit code 3"):
        wait_for(lambda: False, of=process)


def test_a_child_process_has_no_width_that_its_test_did_not_give():
    script = "import os; print(os.environ.get('COLUMNS'))"
    child = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert child.stdout == "None\n"
