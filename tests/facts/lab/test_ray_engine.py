"""Cells as tasks of Ray: a real cluster of this machine, a killed worker, the same rows."""

import subprocess
import sys
from collections import Counter

import pytest

from leadline.errors import LabError
from leadline.lab.cell import run_cell
from leadline.lab.engines import ENGINES, Orders
from leadline.lab.engines.ray import RayEngine, _why_not
from leadline.lab.grid import Grid, Sweep, parse_axes
from leadline.lab.sweep import sweep
from leadline.record import Record
from tests.processes import free_port, wait_for
from tests.ray_cluster import children, started

FIXED = {
    "width": 16,
    "heads": 2,
    "task": "copy",
    "steps": 600,
    "batch": 8,
    "examples": 16,
    "validate": 100,
    "gauges": 100,
}
AXES = ["depth=2,3"]


@pytest.fixture
def cluster():
    """The address of a Ray cluster with two cores, and its environment; ended afterwards."""
    with started({"RAY_AUTH_MODE": "disabled"}) as found:
        yield found


def sentences(said):
    """The lines that a command wrote on standard error, but those of its progress."""
    return [line for line in said.splitlines() if not line.endswith("so far")]


@pytest.mark.ray
@pytest.mark.slow
def test_a_killed_ray_worker_loses_nothing(cluster, tmp_path, start):
    address, environment, head = cluster
    pairs = [text for name, value in FIXED.items() for text in ("--set", f"{name}={value}")]
    path = tmp_path / "s.leadline"
    process = start(
        [
            *(sys.executable, "-m", "leadline.cli.main", "sweep", *AXES, *pairs, "--seeds", "2"),
            *("--every", "0.2", "--engine", "ray", "--address", address, "-o", str(path)),
        ],
        env=environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: list((tmp_path / "s.leadline.work").rglob("*.safetensors")), of=process)
    wait_for(lambda: children(head, "_run_on_ray"), of=process)[0].kill()
    out, said = process.communicate()
    assert process.returncode == 0, said
    assert "4 of 4 cells have ended: 4 finished." in out
    assert all("seed=" in line for line in sentences(said)), said  # nothing of Ray's own
    what = Sweep(name="sweep", grids=(Grid(parse_axes(AXES)),), seeds=(0, 1), fixed=FIXED)
    with Record.open(path) as record:
        assert Counter(record.select()) == Counter(
            reading for cell in what.cells() for reading in run_cell(cell, folder=None).readings
        )
        cells = [v for k, v in record.provenance.items() if k.startswith("cell:")]
        assert sorted(facts["attempts"] for facts in cells) == [1, 1, 1, 2]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.ray
@pytest.mark.parametrize("address", ["auto", "127.0.0.1:{port}"])
def test_a_cluster_that_is_not_there_is_a_sentence(address):
    address = address.format(port=free_port())
    with pytest.raises(LabError, match=f"The Ray cluster {address} cannot be reached"):
        next(RayEngine(address).run([], Orders()))


@pytest.mark.ray
def test_a_cluster_that_is_not_there_leaves_no_record(tiny, tmp_path):
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(LabError, match=f"The Ray cluster {address} cannot be reached"):
        sweep(tiny(), tmp_path / "s", engine=f'ray(address="{address}")')
    assert list(tmp_path.iterdir()) == []


def test_the_ray_engine_takes_an_address():
    engine = ENGINES.build('ray(address="10.0.0.1:6379")')
    assert isinstance(engine, RayEngine)
    assert engine.address == "10.0.0.1:6379"
    assert ENGINES.build("ray").address is None


@pytest.mark.ray
@pytest.mark.slow
def test_a_cluster_with_another_token_is_a_sentence_with_what_to_set(tmp_path):
    with started({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 40}) as (address, there, _):
        done = subprocess.run(
            [
                *(sys.executable, "-m", "leadline.cli.main", "sweep", "depth=1", "--set"),
                *("task=copy", "--engine", "ray", "--address", address, "-o", tmp_path / "s"),
            ],
            env={**there, "RAY_AUTH_TOKEN": "b" * 40},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    (said,) = sentences(done.stderr)
    assert said.startswith(f"leadline: The Ray cluster {address} cannot be reached, though")
    assert "Most often the token differs: set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH" in said


def test_a_ray_that_does_not_start_is_a_sentence():
    said = _why_not(None, OSError("no room\nat all."), answers=False)
    assert said == "A Ray of this machine cannot be started (OSError: at all)."
