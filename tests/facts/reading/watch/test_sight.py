"""What is known of a run at one moment: its numbers, and whether its writer is at work."""

from __future__ import annotations

import os
import platform
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from leadline.errors import RecordError
from leadline.reading.page import screen_of
from leadline.reading.page.run_headline import run_sentences
from leadline.reading.watch import sight as rule
from leadline.reading.watch.history import History
from leadline.reading.watch.robust import LEAST_SAMPLES
from leadline.reading.watch.sight import FollowedRun, RunSight, sight_of
from leadline.reading.watch.state_words import (
    ago,
    answer_sentence,
    detail_sentence,
    state_sentence,
)
from leadline.record.run.ring import Ring, ring_path
from tests.synthetic import gpt2_record
from tests.synthetic_sweep import sweep_record, training_record
from tests.synthetic_watch import (
    Course,
    begin,
    growing_file,
    note_progress,
    watch_record,
    write_sample,
)

SMALL = Course(layers=3, samples=30, every=10)
WELL = Course(layers=3, samples=30, every=10, trouble=False)
NOW = 1_800_000_000.0


class Clocks:
    """A clock and a calendar that move when they are told to."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def clock(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return NOW + self.seconds


@pytest.fixture
def clocks():
    return Clocks()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.leadline"


def follow(path, clocks):
    return FollowedRun(path, clock=clocks.clock, wall=clocks.wall)


def written_at(path: Path, seconds: float) -> None:
    os.utime(path, (NOW + seconds, NOW + seconds))


def test_a_file_that_is_not_there_is_waited_for(path, clocks):
    run = follow(path, clocks)
    clocks.seconds = 12.0
    sight = run.look()
    assert (sight.state, sight.quiet, sight.ended) == ("waiting", 12.0, False)
    assert answer_sentence(sight) == (
        "There is no file run.leadline yet: waiting for it, 12 s so far."
    )
    assert "Ctrl-C" in state_sentence(sight)


def test_a_record_without_a_sample_is_starting(path, clocks):
    with growing_file(path, WELL):
        sight = follow(path, clocks).look()
    assert sight.state == "starting"
    assert answer_sentence(sight) == "run.leadline is there, and no sample has come yet."


def test_a_run_is_running_while_rows_come_and_closed_when_its_writer_says_so(path, clocks):
    run = follow(path, clocks)
    with growing_file(path, WELL) as record:
        for sample in range(3):
            write_sample(record, WELL, sample)
            clocks.seconds += 1
            written_at(path, clocks.seconds)
            sight = run.look()
            assert (sight.state, sight.history.step) == ("running", WELL.step_of(sample))
            assert sight.quiet == 0.0
        clocks.seconds += 5
        sight = run.look()
        assert (sight.state, sight.quiet) == ("running", 5.0)
        assert state_sentence(sight) == (
            f"run.leadline: process {os.getpid()} is writing, the last rows came 5 s ago."
        )
        note_progress(record, WELL, step=20, closed=True)
        assert run.look().state == "running"  # it has the file open still
    sight = run.look()
    assert sight.state == "closed"
    assert sight.ended
    assert answer_sentence(sight).startswith("The run of gpt2 has ended at step 20, loss ")


def test_what_was_read_piece_by_piece_is_what_the_record_holds(path, clocks):
    run = follow(path, clocks)
    with growing_file(path, SMALL) as record:
        for sample in range(SMALL.samples):
            write_sample(record, SMALL, sample)
            if sample % 7 == 0:
                run.look()
    sight = run.look()
    whole = History.of(watch_record(SMALL))
    assert sight.history.step == whole.step
    for name, sites in whole.series.items():
        for site, series in sites.items():
            found = sight.history.series[name][site]
            assert found.steps.tolist() == series.steps.tolist()
            assert found.values.tolist() == series.values.tolist()
    assert [finding.code for finding in sight.findings] == ["G91", "G90"]


def test_a_run_that_goes_on_from_an_earlier_step_does_it_again(path, clocks):
    again = Course(layers=3, samples=30, every=10, trouble=False, run="again", seed=3)
    run = follow(path, clocks)
    with growing_file(path, WELL) as record:
        for sample in range(6):
            write_sample(record, WELL, sample)
        run.look()
        attempts = [{"run": "", "first": 1, "time": ""}, {"run": "again", "first": 21, "time": ""}]
        record.note("watch", {**record.provenance["watch"], "attempts": attempts})
        write_sample(record, again, 3)
        record.note("watch", {**record.provenance["watch"], "attempts": attempts})
        sight = run.look()
        whole = History.of(record)
    loss = sight.history.of_run("train.loss")
    assert loss.steps.tolist() == list(range(1, 31))
    assert loss.values.tolist() == [
        *(WELL.loss(step) for step in range(1, 21)),
        *(again.loss(step) for step in range(21, 31)),
    ]
    assert loss.values.tolist() == whole.of_run("train.loss").values.tolist()


def test_a_writer_that_died_is_told_with_the_time_of_the_last_row(path, clocks):
    run = follow(path, clocks)
    record = growing_file(path, WELL)
    for sample in range(3):
        write_sample(record, WELL, sample)
    written_at(path, 0)
    run.look()
    beside = Path(f"{path}.writer")
    mine = beside.read_text()
    beside.write_text(f"999999999\n{platform.node()}\n2026-11-01 10:00:00\n")
    clocks.seconds = 750.0
    sight = run.look()
    assert sight.state == "died"
    assert answer_sentence(sight).startswith("The run of gpt2 was cut off at step 20, loss ")
    told = state_sentence(sight)
    since = datetime.fromtimestamp(NOW).strftime("%H:%M:%S")
    assert f"process 999999999 is gone; nothing has come since {since}, for 12:30 min" in told
    assert not sight.ended  # it may go on
    ring = Ring(ring_path(path), [], slots=4)
    ring.put(23, [3.0, 1e-3, 1.0])
    sight = run.look()
    assert "the last updates, up to 23, are read from the ring beside it" in state_sentence(sight)
    assert sight.history.step == 23
    assert sight.history.of_run("train.loss").last == 3.0
    assert len(run.look().history.of_run("train.loss")) == len(sight.history.of_run("train.loss"))
    ring.remove()
    beside.write_text(mine)
    record.close()


def test_a_run_is_silent_after_five_times_its_usual_interval_and_a_minute_at_least(path, clocks):
    assert (rule.INTERVALS, rule.LEAST_SILENCE) == (5.0, 60.0)
    begun = "2027-01-15T07:00:00+0000"  # an hour before NOW
    with growing_file(path, WELL) as record:
        for sample in range(4):  # 30 updates in an hour: 1200 s from sample to sample
            write_sample(record, WELL, sample)
        attempts = [{"run": "", "first": 1, "time": begun}]
        record.note("watch", {**record.provenance["watch"], "attempts": attempts})
        written_at(path, 0)
        run = follow(path, clocks)
        for seconds, state in ((0, "running"), (5900, "running"), (6100, "silent")):
            clocks.seconds = seconds
            assert run.look().state == state
        told = state_sentence(run.look())
        assert told.endswith(f"for 1:41:40 h, and process {os.getpid()} still runs.")
        attempts = [{"run": "", "first": 1, "time": "2027-01-15T07:59:59+0000"}]
        record.note("watch", {**record.provenance["watch"], "attempts": attempts})
        written_at(path, 0)
        quick = follow(path, Clocks())
        assert quick.look().state == "running"
        clocks.seconds = 0.0
        quick = follow(path, clocks)
        quick.look()
        clocks.seconds = 61.0
        assert quick.look().state == "silent"


def test_a_writer_on_another_machine_cannot_be_asked(path, clocks):
    with growing_file(path, WELL) as record:
        write_sample(record, WELL, 0)
        attempts = [{"run": "", "first": 1, "time": "2027-01-15T07:59:59+0000"}]
        record.note("watch", {**record.provenance["watch"], "attempts": attempts})
        beside = Path(f"{path}.writer")
        mine = beside.read_text()
        beside.write_text("77\nelsewhere\n2026-11-01 10:00:00\n")
        written_at(path, 0)
        run = follow(path, clocks)
        assert "process 77 on elsewhere is writing" in state_sentence(run.look())
        clocks.seconds = 9999.0
        sight = run.look()
        assert sight.state == "silent"
        assert "process 77 on elsewhere cannot be asked from here" in state_sentence(sight)
        beside.write_text(mine)


def test_another_file_of_the_same_name_is_another_run(path, clocks):
    run = follow(path, clocks)
    with growing_file(path, WELL) as record:
        for sample in range(5):
            write_sample(record, WELL, sample)
    run.look()
    path.rename(path.with_name("old.leadline"))
    assert run.look().state == "waiting"
    with growing_file(path, WELL) as record:
        write_sample(record, WELL, 0)
        assert run.look().history.step == 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (gpt2_record, "by `leadline measure` and holds no training run"),
        (sweep_record, "is the record of a sweep, which has many runs; `leadline map "),
    ],
)
def test_a_record_that_is_no_run_is_refused_with_the_command_that_shows_it(path, make, words):
    make().save(path)
    with pytest.raises(RecordError, match=words):
        FollowedRun(path).look()


def test_a_record_of_train_is_followed_too(path):
    training_record(layers=True, outcome={"status": "finished", "steps": 400}).save(path)
    sight = FollowedRun(path).look()
    assert sight.state == "closed"
    assert answer_sentence(sight).startswith("The run of small has ended at step 400, loss 2.31")
    assert ". Nothing unusual" in answer_sentence(sight)


def test_nobody_says_that_nothing_is_unusual_where_no_alarm_was_asked(path):
    training_record().save(path)
    assert not answer_sentence(FollowedRun(path).look()).endswith("unusual.")


def test_the_answer_is_the_step_the_loss_and_the_warnings():
    assert answer_sentence(sight_of(watch_record(WELL, closed=False))).startswith(
        "Step 290 of gpt2, loss "
    )
    assert answer_sentence(sight_of(watch_record(WELL))).endswith(" and falling. Nothing unusual.")
    assert answer_sentence(sight_of(watch_record(SMALL))).endswith(
        "1 serious warning and 1 warning."
    )


def test_a_run_without_a_loss_is_told_without_one():
    from leadline.record import Record
    from tests.synthetic_watch import readings

    record = Record()
    begin(record, WELL)
    record.append(readings(WELL, 1))
    assert answer_sentence(sight_of(record)) == (
        "Step 1 of gpt2, no loss was seen. Nothing unusual in 1 sample of the 11 that most alarms need."
    )


@pytest.mark.parametrize("samples", [LEAST_SAMPLES, LEAST_SAMPLES + 1])
def test_too_few_samples_for_most_alarms_are_said_wherever_a_run_is_shown(samples):
    """No alarm that compares with the past speaks before `is_early` lets it."""
    record = watch_record(replace(WELL, samples=samples))
    stream = next(iter(sight_of(record).history.series["stream.norm"].values()))
    assert len(stream) == samples
    few = f"{LEAST_SAMPLES} samples of the {LEAST_SAMPLES + 1} that most alarms need"
    said = samples <= LEAST_SAMPLES
    assert answer_sentence(sight_of(record)).endswith(
        f"Nothing unusual in {few}." if said else "Nothing unusual."
    )
    sentence = f"No alarm spoke in {few}: sample more often."
    assert (sentence in screen_of(record).text()) is said
    assert (sentence in run_sentences(record)) is said


def test_the_details_are_how_often_layers_are_read_and_what_that_costs():
    record = watch_record(WELL)
    facts = {**record.provenance["watch"], "notes": ["one.", "two.", "three."]}
    record.note("watch", facts)
    assert detail_sentence(sight_of(record)) == (
        "Every layer is read every 10 updates; watching took 0.4 % of the time. two. three."
    )
    record.note("watch", facts | {"every": 1, "overhead": {}, "notes": []})
    assert detail_sentence(sight_of(record)) == "Every layer is read at every update."
    assert detail_sentence(RunSight("x", "closed")) == ""


def test_times_are_told_as_people_read_them():
    assert [ago(one) for one in (None, 7.4, 99.0, 100.0, 3723.0)] == [
        "0 s",
        "7 s",
        "99 s",
        "1:40 min",
        "1:02:03 h",
    ]


def test_a_lock_is_told(path, clocks):
    with growing_file(path, WELL) as record:
        write_sample(record, WELL, 0)
        sight = follow(path, clocks).look()
    busy = RunSight(**{**vars(sight), "busy": True})
    assert state_sentence(busy).endswith(", the file is locked just now.")
    assert np.isfinite(sight.quiet)
