"""Processes of this machine: killed workers are replaced, nothing is lost, nobody is left behind."""

import os
import signal
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace

import psutil
import pytest

from leadline.errors import LabError
from leadline.lab.cell import run_cell
from leadline.lab.engines import ENGINES, Job, Orders, local
from leadline.lab.engines.engine import DEATHS, STUCK, Deaths
from leadline.lab.engines.local import GRACE, LocalEngine, usable_cores
from leadline.lab.sweep import sweep
from leadline.record import Record
from tests.processes import wait_for

SLOW_STEP = """
import time
from leadline.lab.tasks import TASKS
from leadline.lab.tasks.copy import Copy

@TASKS.register("slow-copy")
class SlowCopy(Copy):
    name = "slow-copy"
    def train(self, step, examples, *, seed):
        time.sleep(0.05)
        return super().train(step, examples, seed=seed)
"""

DYING_WORKERS = """
import multiprocessing, os, signal
from pathlib import Path
from leadline.lab import trainer
from leadline.lab.tasks.copy import Copy

train = Copy.train

def die(self, step, examples, *, seed):
    mark = Path(__file__).with_name(f"dead at {step}")
    if step in (10, 20, 30) and not mark.exists():
        mark.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)
    return train(self, step, examples, seed=seed)

if multiprocessing.parent_process() is not None:  # in workers alone
    trainer.BEAT = 0.0  # every step before its death is heard
    Copy.train = die
"""


def cells(record):
    return {k.removeprefix("cell:"): v for k, v in record.provenance.items() if "cell:" in k}


def command(*arguments):
    return [sys.executable, "-m", "leadline.cli.main", "sweep", *map(str, arguments)]


TINY = [
    *("--set", "width=16", "--set", "heads=2", "--set", "batch=4", "--set", "examples=4"),
    *("--set", "log=10", "--set", "validate=20", "--set", "gauges=20"),
]


def test_the_local_engine_is_found_by_its_name():
    assert isinstance(ENGINES.build("local"), LocalEngine)


def test_there_are_as_many_workers_as_usable_cores():
    assert usable_cores() == len(psutil.Process().cpu_affinity())


def lives(*deaths):
    """Whether a cell is tried again after each death: (checkpoint before, steps heard, after)."""
    found, again = Deaths(), []
    for begun, heard, saved in deaths:
        found.begin(begun)
        for step in heard:
            found.hear(step)
        again.append(found.count(saved))
    return again, found


def test_a_cell_that_dies_three_times_at_one_place_has_failed():
    assert DEATHS == 3
    again, deaths = lives(*[(-1, [], -1)] * 3)
    assert again == [True, True, False]
    assert deaths.reason("the worker", "signal 9", memory=True) == (
        "the worker died 3 times (signal 9) after step 0, often because memory ran out; "
        "choose a smaller width, depth or batch, or fewer workers"
    )
    assert deaths.reason("the worker", "signal 11", memory=False) == (
        "the worker died 3 times (signal 11) after step 0; run this cell alone to see why"
    )
    # The last beat before one and the same step comes now earlier, now later.
    again, deaths = lives((-1, [40, 80], -1), (-1, [45, 85], -1), (-1, [35, 70, 105], -1))
    assert again == [True, True, False]
    assert (deaths.total, deaths.place) == (3, 105)
    again, _ = lives((-1, [40, 80], -1), (-1, [40, 80], -1), (-1, [40], -1))
    assert again == [True, True, False]
    again, _ = lives((-1, [40, 80], -1), (-1, [40, 80], -1), (-1, [39], -1))
    assert again == [True] * 3


def test_a_later_checkpoint_is_a_new_beginning():
    steps = (-1, -1, 10, 10, 20, 20, 20)
    again, deaths = lives(*[(step, [], step) for step in steps])
    assert again == [True] * 6 + [False]
    assert (deaths.total, deaths.saved, deaths.place) == (7, 20, 20)


def test_a_cell_that_is_killed_at_other_places_each_time_is_tried_again():
    again, deaths = lives(
        *[(-1, range(10, end, 10), -1) for end in (50, 90, 20, 200, 50, 90, 20, 200)]
    )
    assert again == [True] * 8
    assert deaths.here == 1


def test_thirty_deaths_without_a_later_checkpoint_are_enough():
    assert STUCK == 30
    kills = [(-1, [10, 20] if n % 2 else [10, 20, 30, 40, 50], -1) for n in range(30)]
    again, deaths = lives(*kills)
    assert again == [True] * 29 + [False]
    assert deaths.reason("the worker", "signal 9", memory=True) == (
        "the worker died 30 times (signal 9) without a later checkpoint than that of step 0; "
        "find out what ends it, then try it again"
    )
    again, _ = lives(*((n, [], n) for n in range(40)))
    assert again == [True] * 40


def test_time_is_up_at_the_deadline(monkeypatch):
    clock = SimpleNamespace(monotonic=lambda: 100.0)
    monkeypatch.setattr("leadline.lab.engines.engine.time", clock)
    assert not Orders().over
    assert not Orders(deadline=100.1).over
    assert Orders(deadline=100.0).over


def test_a_cell_has_half_a_minute_for_its_last_checkpoint():
    assert GRACE == 30.0


def test_ten_workers_killed_before_they_begin_end_the_sweep(monkeypatch, tiny, tmp_path):
    started = []

    class Killed:
        """A process that was killed while it started."""

        exitcode = -9
        sentinel = 0

        def __init__(self, *, target, args, daemon):
            assert daemon
            self.pipe = args[0]

        def start(self):
            started.append(self)

        def join(self):
            """It has ended already."""

        kill = join

    monkeypatch.setattr(local.multiprocessing.get_context("spawn"), "Process", Killed)
    monkeypatch.setattr(local, "wait", lambda *_, **__: None)
    with pytest.raises(LabError, match=r"cannot start \(signal 9\)"):
        sweep(tiny("depth=1"), tmp_path / "s", workers=1)
    assert len(started) == 10
    Killed.exitcode = 1
    started.clear()
    with pytest.raises(LabError, match=r"cannot start \(exit code 1\).*`if __name__"):
        sweep(tiny("depth=1"), tmp_path / "s", workers=1)
    assert len(started) == 1


def test_no_job_needs_no_worker():
    assert list(LocalEngine().run([], Orders())) == []


@pytest.fixture
def dying_workers(tmp_path):
    """A plug-in that kills three workers, one after the other, and leaves their ids beside it."""
    plugin = tmp_path / "plugin" / "dying_workers.py"
    plugin.parent.mkdir()
    plugin.write_text(DYING_WORKERS)
    return plugin


def dead(plugin):
    return {int(mark.read_text()) for mark in plugin.parent.glob("dead at *")}


@pytest.mark.slow
def test_three_killed_workers_lose_nothing(tiny, tmp_path, dying_workers):
    what = tiny("depth=1,2", steps=40, log=10, validate=20, gauges=20)
    before = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    with sweep(what, tmp_path / "s", workers=1, every=1e-9, plugins=[dying_workers]) as record:
        expected = Counter(
            reading for cell in what.cells() for reading in run_cell(cell, folder=None).readings
        )
        assert Counter(record.select()) == expected
        assert sum(facts["attempts"] for facts in cells(record).values()) == 2 + 3
        assert {facts["status"] for facts in cells(record).values()} == {"finished"}
    assert len(dead(dying_workers)) == 3
    assert not any(psutil.pid_exists(worker) for worker in dead(dying_workers))
    assert {name: os.environ.get(name) for name in before} == before
    assert sorted(tmp_path.iterdir()) == [dying_workers.parent, tmp_path / "s"]


def test_a_worker_that_reads_another_text_stops_the_sweep(tiny, tmp_path):
    (tmp_path / "text").write_bytes(bytes(range(256)) * 40)
    (cell,) = tiny("depth=1", task=f'text(path="{tmp_path / "text"}", length=16)').cells()
    spelling = str(cell.training().task_choice)
    orders = Orders(workers=1, texts={spelling: "0" * 64})
    with pytest.raises(LabError, match="has changed while the sweep ran"):
        list(LocalEngine().run([Job(cell, tmp_path / "work")], orders))


@pytest.mark.slow
def test_workers_that_are_killed_long_before_a_checkpoint_is_due_lose_nothing(
    tiny, tmp_path, dying_workers
):
    what = tiny("depth=1", steps=40, log=10, validate=20, gauges=20)
    with sweep(what, tmp_path / "s", workers=1, every=1e9, plugins=[dying_workers]) as record:
        (facts,) = cells(record).values()
        assert facts["status"] == "finished"
        assert facts["attempts"] == 1 + 3
        (cell,) = what.cells()
        assert Counter(record.select()) == Counter(run_cell(cell, folder=None).readings)
    assert len(dead(dying_workers)) == 3


@pytest.mark.slow
def test_a_cell_that_always_kills_its_worker_fails_and_the_rest_go_on(tmp_path):
    plugin = tmp_path / "deadly.py"
    plugin.write_text(
        "import os, multiprocessing\n"
        "from leadline.lab.tasks import TASKS\n"
        "from leadline.lab.tasks.copy import Copy\n"
        "@TASKS.register('deadly')\n"
        "class Deadly(Copy):\n"
        "    name = 'deadly'\n"
        "    def train(self, step, examples, *, seed):\n"
        "        if step == 3 and multiprocessing.parent_process() is not None:\n"
        "            os.kill(os.getpid(), 9)\n"
        "        return super().train(step, examples, seed=seed)\n"
    )
    done = subprocess.run(
        command(
            *("depth=1", "task=deadly(items=4),copy(items=4)", "--steps", 5, "--seeds", 1, *TINY),
            *("--plugin", plugin, "--workers", 1, "-o", tmp_path / "s"),
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "--retry" in done.stdout
    with Record.open(tmp_path / "s") as record:
        dead = cells(record)["depth=1, task=deadly(items=4), seed=0"]
        assert dead["status"] == "failed"
        assert dead["attempts"] == 3
        assert dead["reason"].startswith("the worker died 3 times (signal 9) after step 0, often")
        assert cells(record)["depth=1, task=copy(items=4), seed=0"]["status"] == "finished"


@pytest.mark.slow
def test_a_budget_pauses_running_cells_and_later_they_go_on(tmp_path):
    plugin = tmp_path / "slow.py"
    plugin.write_text(SLOW_STEP)
    arguments = [
        *("depth=1", "--set", "task=slow-copy(items=4)", "--steps", 300, "--seeds", 1, *TINY),
        *("--plugin", plugin, "--workers", 1, "--every", 1000, "-o", tmp_path / "s"),
    ]
    done = subprocess.run(
        command(*arguments, "--budget", "12s"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "It stopped: the budget of 12 seconds was over with 0 of 1 cells ended." in done.stdout
    (checkpoint,) = (tmp_path / "s.work").rglob("checkpoint.safetensors")
    assert checkpoint.stat().st_size > 0
    done = subprocess.run(command(*arguments), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with Record.open(tmp_path / "s") as record:
        (facts,) = cells(record).values()
        assert (facts["status"], facts["steps"]) == ("finished", 300)
        assert facts["seconds"] > 14  # both parts of the run
        assert [r.step for r in record.select("train.loss")] == list(range(10, 301, 10))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_says_how_to_go_on_and_leaves_no_process(tmp_path, start, kind):
    plugin = tmp_path / "slow.py"
    plugin.write_text(SLOW_STEP)
    arguments = [
        *("depth=1", "--set", "task=slow-copy(items=4)", "--steps", 2000, "--seeds", 2, *TINY),
        *("--plugin", plugin, "--workers", 2, "--every", 0.2, "-o", tmp_path / "s"),
    ]
    process = start(command(*arguments), stderr=subprocess.PIPE, text=True, start_new_session=True)
    wait_for(lambda: len(list((tmp_path / "s.work").rglob("*.safetensors"))) == 2, of=process)
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 2
    os.killpg(process.pid, kind)  # a terminal sends it to all of them
    _, said = process.communicate()
    assert process.returncode == 2
    # Lines of progress stand before it where two seconds had passed.
    told = " ".join(said[said.index("leadline: ") :].split())
    assert told.startswith("leadline: The sweep was interrupted; the finished cells are in ")
    assert told.endswith("The same command goes on from there.")
    assert "Traceback" not in said
    psutil.wait_procs(family)


@pytest.mark.slow
def test_workers_of_a_killed_sweep_end_with_it(tmp_path, start):
    plugin = tmp_path / "slow.py"
    plugin.write_text(SLOW_STEP)
    process = start(
        command(
            *("depth=1", "--set", "task=slow-copy(items=4)", "--steps", 2000, "--seeds", 2, *TINY),
            *("--plugin", plugin, "--workers", 2, "--every", 0.2, "-o", tmp_path / "s"),
        )
    )
    wait_for(lambda: len(list((tmp_path / "s.work").rglob("*.safetensors"))) == 2, of=process)
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 2
    process.kill()
    psutil.wait_procs(family)  # if one of them goes on, this does too, until pytest ends the test


@pytest.mark.slow
def test_a_script_without_a_main_guard_is_told_so(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from leadline.lab.grid import Grid, Sweep, parse_axes\n"
        "from leadline.lab.sweep import sweep\n"
        "what = Sweep(name='s', grids=(Grid(parse_axes(['depth=1'])),), fixed={'task': 'copy'})\n"
        f"sweep(what, {str(tmp_path / 's')!r}, workers=1)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert (
        "call sweep() or scan() below `if __name__ == '__main__':`" in done.stderr.splitlines()[-1]
    )
