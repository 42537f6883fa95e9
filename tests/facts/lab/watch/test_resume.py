"""A run that was cut off goes on in its record, and History puts its attempts together."""

import os

import torch

import leadline
from leadline.lab.watch.watch import watch
from leadline.reading.watch.history import History
from leadline.record import Record, Site
from leadline.record.run.ring import Ring, ring_path
from leadline.record.run.watching import attempts_of
from tests.twin_runs import batches
from tests.watched import tiny_gpt2

EVERY = 2


def train(
    path, first, last, *, state=None, late=False, optimizer=torch.optim.AdamW, rate=1e-2, **options
):
    """Make the updates `first` to `last`; return the watch and a checkpoint."""
    model = tiny_gpt2(dropout=0.0)
    stepper = optimizer(model.parameters(), lr=rate)
    options = {"every": EVERY, "quiet": True} | options

    def load():
        if state is not None:
            model.load_state_dict(state[0])
            stepper.load_state_dict(state[1])

    if not late:
        load()
    one = watch(model, stepper, path, **options)
    if late:
        load()
    for batch in batches(last)[first - 1 :]:
        model(**batch).loss.backward()
        stepper.step()
        stepper.zero_grad()
    one.close()
    return one, (model.state_dict(), stepper.state_dict())


def attempts(path):
    with Record.open(path) as record:
        return [(one.run, one.first) for one in attempts_of(record)]


def series(path, quantity):
    with Record.open(path) as record:
        history = History.of(record)
    return list(history.of_run(quantity).steps), list(history.of_run(quantity).values)


def test_a_run_goes_on_where_it_was_cut_off(tmp_path):
    whole, _ = train(tmp_path / "whole", 1, 9)
    for late in (False, True):  # the optimizer's state is loaded before or after the line
        path = tmp_path / f"late-{late}"
        one, state = train(path, 1, 5)
        other, _ = train(path, 6, 9, state=state, late=late)
        assert (one.step, other.step) == (5, 9)
        assert other.notes == []
        assert attempts(path) == [("", 1), ("", 6)]
        steps, losses = series(path, "train.loss")
        assert steps == list(range(1, 10))
        assert losses == series(whole.path, "train.loss")[1]
        assert series(path, "train.gradient_norm")[0] == [1, 2, 4, 6, 8]


def test_a_run_that_goes_back_does_it_again_beside_what_was_read(tmp_path):
    _, early = train(tmp_path / "a", 1, 3)
    path = tmp_path / "b"
    train(path, 1, 6)
    other, _ = train(path, 4, 9, state=early)
    assert "reaches step 6, and this run goes on from step 4" in other.notes[0]
    assert attempts(path) == [("", 1), ("again from step 4 (2)", 4)]
    assert series(path, "train.loss")[0] == list(range(1, 10))
    assert series(path, "train.gradient_norm")[0] == [1, 2, 4, 6, 8]
    with Record.open(path) as record:  # nothing is lost
        steps = {run: [r.step for r in record.select("train.loss", run=run)] for run in record.runs}
    assert steps == {"": [1, 2, 3, 4, 5, 6], "again from step 4 (2)": [4, 5, 6, 7, 8, 9]}


def test_a_third_attempt_goes_on_from_the_second(tmp_path):
    _, early = train(tmp_path / "a", 1, 3)
    path = tmp_path / "b"
    train(path, 1, 8)
    _, state = train(path, 4, 5, state=early)
    train(path, 6, 9, state=state)
    assert [first for _, first in attempts(path)] == [1, 4, 6]
    assert series(path, "train.loss")[0] == list(range(1, 10))


def test_the_same_run_from_the_start_again(tmp_path):
    path = tmp_path / "a"
    train(path, 1, 5)
    again, _ = train(path, 1, 3)
    assert "this one begins at step 1: it takes its place" in again.notes[0]
    assert series(path, "train.loss")[0] == [1, 2, 3]  # what is true now
    assert again.step == 3


def test_a_warning_that_stood_when_the_run_was_cut_off_is_not_said_again(tmp_path):
    path = tmp_path / "a"
    first, state = train(path, 1, 6, rate=0.0)
    assert [one.code for one in first.warnings] == ["G14"]
    second, _ = train(path, 7, 12, state=state, rate=0.0)
    assert second.warnings == []
    with Record.open(path) as record:
        assert [one.code for one in record.findings] == ["G14"]


def test_an_optimizer_that_does_not_count_is_told_where_it_is(tmp_path):
    path = tmp_path / "a"
    _, state = train(path, 1, 4, optimizer=torch.optim.SGD)
    other, _ = train(path, 5, 6, state=state, optimizer=torch.optim.SGD, start=4)
    assert other.notes == []
    assert series(path, "train.loss")[0] == [1, 2, 3, 4, 5, 6]
    third, _ = train(path, 7, 8, state=state, optimizer=torch.optim.SGD)
    assert "this one begins at step 1: it takes its place" in third.notes[0]
    assert third.notes[0].endswith("say start=N, the updates made before.")


def test_wrappers_do_not_make_another_run_of_it(tmp_path):
    path = tmp_path / "a"
    _, state = train(path, 1, 2)
    model = tiny_gpt2()
    model.load_state_dict(state[0])
    wrapped = torch.compile(model, backend="eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    optimizer.load_state_dict(state[1])
    one = watch(wrapped, optimizer, path, quiet=True, every=1)
    assert one.active
    one.close()


def refusal(path, model=None):
    model = tiny_gpt2() if model is None else model
    optimizer = torch.optim.AdamW(model.parameters())
    one = watch(model, optimizer, path, quiet=True)
    for batch in batches(2):
        model(**batch).loss.backward()
        optimizer.step()
    one.close()
    assert not one.active
    (note,) = one.notes
    assert note.endswith("give another path. The run is not watched; training continues.")
    return note


def test_another_model_is_refused(tmp_path):
    train(tmp_path / "a", 1, 2)
    before = (tmp_path / "a").read_bytes()
    other = tiny_gpt2()
    other.add_module("more", torch.nn.Linear(2, 2))
    assert "the run of another model" in refusal(tmp_path / "a", other)
    assert (tmp_path / "a").read_bytes() == before


def test_what_is_no_record_of_a_watch_is_refused_and_left_alone(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("mine")
    assert "exists and is no record" in refusal(text)
    assert text.read_text() == "mine"
    record = tmp_path / "measured"
    leadline.measure(tiny_gpt2(), path=record, probes="stream").close()
    before = record.read_bytes()
    assert "did not write" in refusal(record)
    assert record.read_bytes() == before


def test_what_is_no_file_is_refused_and_never_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # opening one waits until somebody writes to it
    assert "is no regular file; give another path" in refusal(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    assert "is a folder; give another path" in refusal(tmp_path / "folder")


def test_an_empty_file_and_a_link_to_a_file_that_is_not_there_yet_are_taken(tmp_path):
    empty = tmp_path / "empty"
    empty.touch()
    elsewhere = tmp_path / "disk"
    elsewhere.mkdir()
    link = tmp_path / "link"
    link.symlink_to(elsewhere / "run")
    for path in (empty, link):
        one, _ = train(path, 1, 3)
        assert one.notes == []
        assert series(path, "train.loss")[0] == [1, 2, 3]
    assert link.is_symlink()
    assert (elsewhere / "run").is_file()


def test_a_second_line_for_the_same_file_takes_over(tmp_path):
    """A notebook runs its loop again after an error."""
    model = tiny_gpt2()
    optimizer = torch.optim.AdamW(model.parameters())
    first = watch(model, optimizer, tmp_path / "a", quiet=True)
    with watch(model, optimizer, tmp_path / "a", quiet=True) as second:
        assert second.active
        assert not first.active
        model(**batches(1)[0]).loss.backward()
        optimizer.step()
    assert (first.step, second.step) == (0, 1)
    assert series(tmp_path / "a", "train.loss")[0] == [1]


def test_the_ring_of_a_process_that_died_is_taken_over_with_its_attempt(tmp_path):
    """A ring that outlives its process holds what the record does not hold yet."""
    path = tmp_path / "a"
    _, early = train(tmp_path / "b", 1, 3)
    train(path, 1, 8)
    train(path, 4, 5, state=early)  # the attempt that dies has reached step 5 of its own
    ring = Ring(ring_path(path), [{"stack": "decoder", "layer": 1, "sublayer": 1}], slots=4)
    for step in (4, 5, 6, 7):
        ring.put(step, [float(step), 1e-2, 3.0, 2.0])
    ring.close()
    train(path, 8, 9, start=7)
    assert not ring_path(path).exists()
    steps, losses = series(path, "train.loss")
    assert steps == list(range(1, 10))
    assert losses[5:7] == [6.0, 7.0]
    with Record.open(path) as record:
        site = Site("decoder", 1, 1)
        rows = [r for r in record.select("gradient.parameters") if r.site == site]
    assert [(row.step, row.value) for row in rows] == [(6, 2.0), (7, 2.0)]


def test_a_ring_that_cannot_be_read_is_left_and_said(tmp_path):
    path = tmp_path / "a"
    train(path, 1, 2)
    ring_path(path).write_bytes(b"something else")
    one, _ = train(path, 3, 4, start=2)
    assert "does not hold the last updates" in one.notes[0]
    assert one.step == 4
