"""Two processes in one: who waits for whom, and what a process that comes late finds."""

import gc
import itertools
from threading import Thread
from threading import enumerate as enumerate_threads
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from leadline.errors import ProcessError
from leadline.instruments.passes.processes import convoy as module
from leadline.instruments.passes.processes import pulse
from leadline.instruments.passes.processes.convoy import CHUNK, Convoy, convoy_for
from leadline.instruments.passes.processes.mailbox import Message
from tests.processes import wait_for

WIDTHS = itertools.count(1)


@pytest.fixture
def process(monkeypatch):
    """Makes the call of one process with a model of its own; nobody is waited for long."""
    store = dist.HashStore()
    monkeypatch.setattr(module, "process_store", lambda: store)
    monkeypatch.setattr(module, "ARRIVAL", 0.05)
    monkeypatch.setattr(module, "_calls", {})
    model = torch.nn.Linear(2, next(WIDTHS))

    def call(rank):
        group = SimpleNamespace(get_rank=lambda: rank, get_world_size=lambda: 2)
        monkeypatch.setattr(module, "dist", group)
        return Convoy(model, "replicated")

    return call


def fails(convoy, error):
    with pytest.raises(type(error)), convoy.call():
        raise error


def test_a_process_that_comes_late_hears_why_the_first_has_left(process):
    fails(process(0), ValueError("no such text"))
    other = process(1)
    with pytest.raises(ProcessError, match="Process 0 left") as caught, other.call():
        other.agree("the inputs")
    assert "no such text" in str(caught.value)
    assert caught.value.by == 0


def test_the_second_call_of_one_meets_the_second_of_the_other(process):
    fails(process(0), ValueError("the first"))
    fails(process(0), ValueError("the second"))
    for words in ("the first", "the second"):
        other = process(1)
        with pytest.raises(ProcessError, match=words), other.call():
            other.agree("the inputs")


def test_a_call_that_one_process_never_made_is_passed_by(process):
    first = process(0)
    with pytest.raises(ProcessError, match="Process 1 has not come"), first.call():
        first.agree("the inputs")
    fails(process(0), ValueError("the second"))
    other = process(1)
    with pytest.raises(ProcessError, match="the second"), other.call():
        other.agree("the inputs")


def test_a_process_that_finds_no_first_one_does_not_count_its_call(process):
    with pytest.raises(ProcessError, match="Process 0 has not come"):
        process(1)
    fails(process(0), ValueError("now"))
    other = process(1)
    with pytest.raises(ProcessError, match="now"), other.call():
        other.agree("the inputs")


def test_processes_that_do_different_things_are_told_apart(process):
    first, other = process(0), process(1)
    other._next()
    other._send(1, Message({"stage": "the anatomy"}))
    with pytest.raises(ProcessError, match="came to 'the anatomy' where process 0 came to 'the"):
        first.agree("the inputs")


def test_a_failure_that_somebody_caught_is_raised_again(process):
    fails(process(0), ValueError("gone"))
    other = process(1)
    with pytest.raises(ProcessError, match="gone"), other.call():
        caught_by_others(other)


def caught_by_others(convoy):
    """What a search does that tries one thing after the other."""
    for stage in ("one", "two"):
        with pytest.raises(ProcessError, match="gone"):
            convoy.agree(stage)


def test_many_numbers_come_in_several_messages(process):
    first, other = process(0), process(1)
    numbers = [float(number) for number in range(2 * CHUNK + 5)]
    other.gather("the readings", Message({"of": "parts"}, numbers))
    messages = first.gather("the readings", Message({}, [1.0]))
    assert list(messages[0].numbers) == [1.0]
    assert list(messages[1].numbers) == numbers
    assert messages[1].facts["of"] == "parts"


def test_a_plain_model_is_measured_by_the_process_that_asks():
    assert convoy_for(torch.nn.Linear(2, 2)) is None
    assert convoy_for("gpt2") is None


# --- processes that are ended from outside -----------------------------------------------------------


def test_a_process_that_was_ended_from_outside_is_not_waited_for(process, monkeypatch):
    monkeypatch.setattr(pulse, "SILENCE", 0.05)
    monkeypatch.setattr(module, "LOOK", 0.1)
    monkeypatch.setattr(module, "ARRIVAL", 60.0)
    first, other = process(0), process(1)
    ended = Thread(target=other.agree, args=("the inputs",))  # outside of a call it has no pulse
    ended.start()

    def measure():
        with first.call():
            first.agree("the inputs")
            first.agree("the loss")

    with pytest.raises(ProcessError, match="Process 1 has not been heard of") as caught:
        measure()
    ended.join()
    assert caught.value.by == 1


def test_a_process_is_heard_as_long_as_its_call_lasts(monkeypatch):
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(pulse, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(pulse, "EVERY", 0.01)
    store = dist.HashStore()
    first, other = (pulse.Pulse(store, "a call", rank=rank) for rank in (0, 1))
    assert not first.is_silent(1)
    clock.now += pulse.SILENCE - 1
    assert not first.is_silent(1)
    clock.now += 2
    assert first.is_silent(1)
    with other.beating():
        wait_for(lambda: not first.is_silent(1))
        clock.now += pulse.SILENCE + 1
        wait_for(lambda: not first.is_silent(1))
    wait_for(lambda: "leadline-pulse" not in [one.name for one in enumerate_threads()])
    first.is_silent(1)
    clock.now += pulse.SILENCE + 1
    assert first.is_silent(1)


def test_the_end_of_the_process_that_keeps_the_store_is_said_in_a_sentence(process, monkeypatch):
    stores = [dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)]
    here = dist.TCPStore("127.0.0.1", stores[0].port, is_master=False)
    monkeypatch.setattr(module, "process_store", lambda: stores[0] if stores else here)
    first = process(0)
    monkeypatch.setattr(module, "process_store", lambda: here)
    other = process(1)
    del first
    stores.clear()
    gc.collect()
    with pytest.raises(ProcessError, match="cannot be reached any more") as caught, other.call():
        other.agree("the inputs")
    assert "\n" not in str(caught.value)
    with pytest.raises(ProcessError, match="cannot be reached any more"):
        process(1)
