"""kill -9 of a watched training at random moments: the record opens and holds every sample."""

import json
import subprocess
import sys

import pytest

from leadline.lab.watch.bell import SLOTS
from leadline.reading.watch.history import History
from leadline.record import Record
from tests.killed_watch import EVERY

KILLS = 10


@pytest.mark.slow
def test_ten_deaths(tmp_path, start):
    path = tmp_path / "run.leadline"
    command = [sys.executable, "-m", "tests.killed_watch", str(path), str(KILLS), "7"]
    process = start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, said = process.communicate()
    assert process.returncode == 0, said
    lives = [json.loads(line) for line in out.splitlines()]
    assert len(lives) == KILLS
    assert lives[-1]["last"] > 2 * KILLS  # they have lived, between their deaths
    for life in lives:
        first, last = life["start"] + 1, life["last"]
        due = {step for step in range(first, last + 1) if step == first or step % EVERY == 0}
        samples = set(life["samples"])
        assert life["integrity"] == "unclosed"
        assert due <= samples, "a sample is missing"
        assert life["sizes"] == [3], "a sample is cut off"
        # Losses up to the last sample, and of earlier lives what the ring had kept.
        assert set(range(1, max(samples) + 1)) <= set(life["losses"])
        # The ring holds every update of this life, up to the one that was under way.
        expected = list(range(max(first, last - SLOTS + 1), last + 1))
        assert life["ring"][: len(expected)] == expected
        assert len(life["ring"]) <= len(expected) + 1
        assert life["batches"][0] == f"batch {expected[0]}"
        assert life["firsts"][-1] == first
    with Record.open(path) as record:
        history = History.of(record)
    steps = list(history.of_run("train.loss").steps)
    assert steps == list(range(1, steps[-1] + 1))
    # What only the ring knew came into the record when the next life began.
    norms = set(history.of_run("train.gradient_norm").steps)
    for life in lives[:-1]:
        assert set(range(life["samples"][-1], life["last"] + 1)) <= norms
