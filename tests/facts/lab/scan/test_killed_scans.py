"""kill -9 of the command and of its workers, here and on a real Ray cluster: the same rows."""

import subprocess
import sys
from collections import Counter

import pytest

from leadline.record import Record
from tests.processes import wait_for
from tests.ray_cluster import children, started
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


@pytest.mark.slow
def test_a_killed_worker_and_a_killed_command_lose_nothing(twelve, tmp_path, start):
    folder, expected = twelve
    path = tmp_path / "s.leadline"
    process = start(command(folder, path, "--quiet"), stderr=subprocess.PIPE, text=True)
    wait_for(lambda: measured(path) >= 2, of=process)
    wait_for(lambda: children(process.pid, "spawn_main"), of=process)[0].kill()
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


@pytest.mark.ray
@pytest.mark.slow
def test_a_killed_ray_worker_changes_no_row(twelve, tmp_path, start):
    folder, expected = twelve
    path = tmp_path / "s.leadline"
    with started({"RAY_AUTH_MODE": "disabled"}) as (address, environment, head):
        process = start(
            command(folder, path, "--engine", "ray", "--address", address),
            env=environment,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        wait_for(lambda: measured(path) >= 2, of=process)
        wait_for(lambda: children(head, "_run_on_ray"), of=process)[0].kill()
        out, said = process.communicate()
    assert process.returncode == 0, said
    assert "12 checkpoints are healthy" in out or "Of 12 checkpoints" in out
    with Record.open(path) as record:
        assert Counter(map(repr, record.select())) == expected
        entries = [value for key, value in record.provenance.items() if "checkpoint:" in key]
        assert sorted(one["attempts"] for one in entries) == [*([1] * 11), 2]
        assert record.scan.stopped == ""
    assert list(tmp_path.iterdir()) == [path]
