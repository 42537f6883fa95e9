"""kill -9 of the whole command and of single workers at random moments: the record is the same."""

import math
import random
import resource
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress

import psutil
import pytest

from leadline.lab.cell import run_cell
from leadline.lab.grid import Grid, Sweep, parse_axes
from leadline.record import Record

AXES = ["depth=2,3", "placement=pre,post"]
FIXED = {
    "width": 16,
    "heads": 2,
    "task": "copy",
    "steps": 400,
    "batch": 8,
    "examples": 16,
    "log": 10,
    "validate": 50,
    "gauges": 50,
}
KILLS = 20


def command(path, *arguments):
    pairs = [text for name, value in FIXED.items() for text in ("--set", f"{name}={value}")]
    return [
        *(sys.executable, "-m", "leadline.cli.main", "sweep", *AXES, *pairs, "--seeds", "2"),
        *("--every", "0.2", "--workers", "2", "-o", str(path), *arguments),
    ]


def undisturbed():
    """The rows of every cell, trained alone, in this process, without a checkpoint."""
    what = Sweep(name="sweep", grids=(Grid(parse_axes(AXES)),), seeds=(0, 1), fixed=FIXED)
    return Counter(
        reading for cell in what.cells() for reading in run_cell(cell, folder=None).readings
    )


def disturb(path, chance, kinds, start):
    """Run the command until it ends by itself; kill it, or one of its workers, at random moments."""
    while True:
        process = start(command(path, "--quiet"), stderr=subprocess.PIPE, text=True)
        while kinds and process.poll() is None:
            kind = kinds[-1]
            if kind == "worker" and not wait(process, math.inf, workers_of):
                break
            if wait(process, chance.uniform(0.2, 8.0), ended):
                break
            if kind == "command":
                process.kill()
                kinds.pop()
                process.wait()
            elif found := workers_of(process):
                chance.choice(found).kill()
                kinds.pop()
        _, said = process.communicate()
        if process.returncode == 0:
            return
        assert process.returncode == -9, said


def workers_of(process):
    found = []
    with suppress(psutil.Error):
        for child in psutil.Process(process.pid).children():
            with suppress(psutil.Error):
                if any("spawn_main" in word for word in child.cmdline()):
                    found.append(child)
    return found


def ended(process):
    return process.poll() is not None


def wait(process, seconds, condition):
    """Wait so long, or until the condition holds or the process has ended; say whether it holds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None and not condition(process):
        time.sleep(0.02)
    return bool(condition(process))


@pytest.mark.slow
def test_twenty_kills_lose_nothing_and_double_nothing(tmp_path, start):
    expected = undisturbed()
    assert set(expected.values()) == {1}
    chance = random.Random(0)
    kinds = ["command", "worker"] * (KILLS // 2)
    chance.shuffle(kinds)
    rounds = 0
    while kinds:
        path = tmp_path / f"{rounds}.leadline"
        disturb(path, chance, kinds, start)
        with Record.open(path) as record:
            assert Counter(record.select()) == expected
            cells = {k: v for k, v in record.provenance.items() if k.startswith("cell:")}
            assert len(cells) == 8
            assert {facts["status"] for facts in cells.values()} == {"finished"}
            assert record.provenance["sweep"]["stopped"] is None
        assert [p for p in tmp_path.iterdir() if p.suffix != ".leadline"] == []
        rounds += 1


@pytest.mark.slow
def test_a_disk_that_is_full_for_checkpoints_stops_the_sweep_with_a_sentence(tmp_path):
    path = tmp_path / "s.leadline"

    def small_files():  # nothing larger than this can be written, as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    full = subprocess.run(
        command(path),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=small_files,
    )
    assert full.returncode == 2
    last = full.stderr.splitlines()[-1]
    assert "The checkpoint in " in last and "cannot be written" in last
    assert "free some space" in last and "run it again to go on" in last
    assert path.exists()
    rest = subprocess.run(command(path), capture_output=True, text=True, check=False)
    assert rest.returncode == 0, rest.stderr
    with Record.open(path) as record:
        assert Counter(record.select()) == undisturbed()
