"""kill -9 of the command and of its workers, here and on a real Ray cluster: the same rows."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from leadline.record import Record
from tests.processes import end, free_port, wait_for
from tests.scanned import expected_rows, train_run

STEPS = range(1, 13)


@pytest.fixture(scope="module")
def twelve(tmp_path_factory):
    """Twelve checkpoints of a run, and the rows of each measured alone in this process."""
    folder = train_run(tmp_path_factory.mktemp("twelve"), STEPS)
    rows = Counter[str]()
    for step in STEPS:
        name = f"checkpoint-{step}"
        rows += expected_rows(folder / name, name=name, step=step)
    return folder, rows


def command(folder, path, *arguments):
    return [
        *(sys.executable, "-m", "leadline.cli.main", "scan", str(folder), "-o", str(path)),
        *("--workers", "2", *arguments),
    ]


def measured(path):
    """How many checkpoints have their entries; none while the file is not there."""
    try:
        with Record.open(path) as record:
            return sum(key.startswith("checkpoint:") for key in record.provenance)
    except Exception:  # it is being written
        return 0


def below(process, *words):
    """The processes below one in whose command one of the words stands."""
    found = []
    with suppress(psutil.Error):
        for one in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.Error):
                if any(word in " ".join(one.cmdline()) for word in words):
                    found.append(one)
    return found


@pytest.mark.slow
def test_a_killed_worker_and_a_killed_command_lose_nothing(twelve, tmp_path, start):
    folder, expected = twelve
    path = tmp_path / "s.leadline"
    process = start(command(folder, path, "--quiet"), stderr=subprocess.PIPE, text=True)
    wait_for(lambda: measured(path) >= 2, of=process)
    wait_for(lambda: below(process, "spawn_main"), of=process)[0].kill()
    so_far = measured(path)
    wait_for(lambda: measured(path) > so_far, of=process)
    process.kill()
    process.wait()
    kept = measured(path)
    assert 3 <= kept < len(STEPS)
    done = subprocess.run(command(folder, path), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{kept} of 12 checkpoints were measured before." in done.stderr
    with Record.open(path) as record:
        assert Counter(map(repr, record.select())) == expected
        assert len(record.scan.checkpoints) == 12
    assert list(tmp_path.iterdir()) == [path]


@contextmanager
def cluster():
    """A Ray cluster of this machine with two cores: its address, its environment, its process."""
    folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))  # sockets need a short path
    port = free_port()
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    head = subprocess.Popen(
        [
            *(Path(sys.executable).with_name("ray"), "start", "--head", "--block"),
            *(f"--port={port}", "--num-cpus=2", f"--temp-dir={folder}"),
            *("--include-dashboard=false", "--disable-usage-stats"),
        ],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    family = []
    try:
        wait_for(lambda: below(head, "raylet"), of=head)
        yield f"127.0.0.1:{port}", environment, head
        family = psutil.Process(head.pid).children(recursive=True)
    finally:
        head.terminate()
        with suppress(subprocess.TimeoutExpired):
            head.wait(timeout=30)
        end(head)
        for one in psutil.wait_procs(family, timeout=10)[1]:
            one.kill()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.ray
@pytest.mark.slow
def test_a_killed_ray_worker_changes_no_row(twelve, tmp_path, start):
    folder, expected = twelve
    path = tmp_path / "s.leadline"
    with cluster() as (address, environment, head):
        process = start(
            command(folder, path, "--engine", "ray", "--address", address),
            env=environment,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        wait_for(lambda: measured(path) >= 2, of=process)
        wait_for(lambda: below(head, "_run_on_ray"), of=process)[0].kill()
        out, said = process.communicate()
    assert process.returncode == 0, said
    assert "12 checkpoints are healthy" in out or "Of 12 checkpoints" in out
    with Record.open(path) as record:
        assert Counter(map(repr, record.select())) == expected
        entries = [value for key, value in record.provenance.items() if "checkpoint:" in key]
        assert sorted(one["attempts"] for one in entries) == [*([1] * 11), 2]
        assert record.scan.stopped == ""
    assert list(tmp_path.iterdir()) == [path]
