"""Measuring claims: what runs, what is kept, what happens when something breaks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

from leadline.claims import CLAIMS
from leadline.claims.ledger import Ledger
from leadline.claims.running import jobs_of, run_claims
from leadline.errors import InputError, RecordError
from leadline.record.file.lock import only_writer
from tests.processes import children, wait_for

NAME = "power-of-nine-tenths"

PLUGIN = '''
"""Claims that only count how often they are measured."""
import os, threading
from pathlib import Path
from leadline.claims.claim import Check
from leadline.claims import Measured, Trial, claim

HERE = Path(__file__).parent
WORDS = dict(group="algebra", notes=(), title="T", formula="", plain="", says="", correction="", why="")
CHECK = Check("value", "claim", "at least", 0.0, label="value", because="It is a count.")

def counted(what, seed):
    with (HERE / "counted.txt").open("a") as file:
        file.write(f"{what} {seed} {os.getpid()}\\n")

def shared(seed):
    counted("trial", seed)
    if os.environ.get("HOLD"):
        threading.Event().wait()  # until this process is ended
    if os.environ.get("BREAK") == "trial":
        raise ValueError("the trial broke")
    if os.environ.get("BREAK") == "process":
        os._exit(9)
    return {"loss": 1.0 + seed}

CELL = Trial("a-cell", shared, 5.0)

@claim("reads-a-trial", **WORDS, checks=(CHECK,), seconds=1.0, needs=(CELL,))
def first(seed, trials):
    counted("first", seed)
    return Measured({"value": trials["a-cell"]["loss"]})

@claim("reads-it-too", **WORDS, checks=(CHECK,), seconds=1.0, needs=(CELL,))
def second(seed, trials):
    counted("second", seed)
    if os.environ.get("BREAK") == "claim":
        raise ValueError("the claim broke")
    return Measured({"value": -trials["a-cell"]["loss"]})

@claim("gives-too-little", **WORDS, checks=(CHECK,), seconds=1.0, seeded=False)
def third(seed):
    return Measured({"another": 1.0})
'''


@pytest.fixture
def command(tmp_path, start):
    (tmp_path / "own_claims.py").write_text(PLUGIN)

    def run(*arguments, wait=True, **environment):
        words = [sys.executable, "-m", "leadline.cli.main", "claims", "run", *arguments]
        words += ["--plugin", "own_claims.py", "--workers", "2", "--json"]
        started = start(
            words,
            cwd=tmp_path,
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if not wait:
            return started
        out, err = started.communicate()
        return started.returncode, json.loads(out) if out else None, err

    run.folder = tmp_path
    return run


def counts(folder):
    lines = (folder / "counted.txt").read_text().splitlines()
    return sorted(" ".join(line.split()[:2]) for line in lines)


def test_the_jobs_of_a_claim_are_one_per_seed_or_one_where_nothing_is_drawn():
    assert [job.seed for job in jobs_of([NAME], (3, 4))] == [0]
    assert CLAIMS.get(NAME).seeded is False


@pytest.mark.slow
def test_a_trial_runs_once_for_all_its_claims_and_nothing_runs_twice(command):
    names = ("reads-a-trial", "reads-it-too")
    code, told, _ = command(*names, "--seeds", "2")
    assert code == 0
    expected = sorted(f"{what} {seed}" for what in ("trial", "first", "second") for seed in (0, 1))
    assert counts(command.folder) == expected
    assert [one["verdict"] for one in told["claims"]] == ["holds", "false as stated"]
    assert told["claims"][0]["numbers"] == {"value": [1.0, 2.0]}

    code, told, _ = command(*names, "--seeds", "3")
    assert code == 0
    expected += ["trial 2", "first 2", "second 2"]
    assert counts(command.folder) == sorted(expected)
    assert told["claims"][0]["seeds"] == [0, 1, 2]


@pytest.mark.slow
def test_what_breaks_is_named_and_the_rest_is_measured(command):
    code, told, err = command("reads-a-trial", "reads-it-too", "--seeds", "1", BREAK="claim")
    assert code == 1
    assert told["failed"] == {"reads-it-too": "ValueError: the claim broke"}
    assert "reads-it-too could not be measured: ValueError: the claim broke" in err
    assert [one["verdict"] for one in told["claims"]] == ["holds", "not measured"]


@pytest.mark.slow
def test_claims_of_a_broken_trial_say_what_they_wait_for(command):
    code, told, _ = command("reads-a-trial", "gives-too-little", "--seeds", "1", BREAK="trial")
    assert code == 1
    assert told["failed"]["a-cell"] == "ValueError: the trial broke"
    assert told["failed"]["reads-a-trial"] == "it waits for the trial 'a-cell', which failed"
    assert "checks value, which its measurement does not give" in told["failed"]["gives-too-little"]


@pytest.mark.slow
def test_a_killed_process_is_told_and_what_was_measured_is_kept(command):
    code, _, err = command("reads-a-trial", "--seeds", "1", BREAK="process")
    assert code == 2
    assert "was killed" in err
    code, told, _ = command("reads-a-trial", "--seeds", "1")
    assert code == 0
    assert told["claims"][0]["verdict"] == "holds"


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows sends no SIGINT to a process")
def test_an_interrupted_run_goes_on_and_leaves_no_process_behind(command):
    started = command("reads-a-trial", "--seeds", "1", wait=False, HOLD="yes")
    file = command.folder / "counted.txt"
    wait_for(lambda: file.exists() and file.read_text().endswith("\n"), of=started)
    worker = int(file.read_text().split()[2])
    started.send_signal(signal.SIGINT)
    _, err = started.communicate()
    assert started.returncode == 130
    assert "What was measured is in claims.jsonl; the same command goes on." in err
    assert not psutil.pid_exists(worker)
    code, _, _ = command("reads-a-trial", "--seeds", "1")
    assert code == 0


def test_a_run_that_is_cut_off_has_ended_its_processes_when_it_returns(tmp_path):
    begun = []

    def interrupt(*_):
        begun.extend(children())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_claims([NAME], (0,), tmp_path / "claims.jsonl", workers=1, progress=interrupt)
    assert len(begun) == 1
    assert children() == []


def test_only_one_run_at_a_time_writes_a_ledger(tmp_path):
    path = tmp_path / "claims.jsonl"
    with only_writer(path), pytest.raises(RecordError, match="Another measurement is at work"):
        run_claims([NAME], (0,), path)


def test_seeds_and_processes_are_counted_from_one_on(tmp_path):
    with pytest.raises(InputError, match="Seeds are whole numbers from 0 on"):
        run_claims([NAME], (-1,), tmp_path / "claims.jsonl")
    with pytest.raises(InputError, match="0 processes cannot measure"):
        run_claims([NAME], (0,), tmp_path / "claims.jsonl", workers=0)


def test_what_a_run_found_is_in_its_ledger(tmp_path):
    path = tmp_path / "claims.jsonl"
    assert run_claims([NAME], (0, 1), path, workers=1).measured == 1
    again = run_claims([NAME], (0, 1), path, workers=1)
    assert (again.measured, again.kept) == (0, 1)
    assert Ledger(path).ruling(NAME).verdict == "holds"
