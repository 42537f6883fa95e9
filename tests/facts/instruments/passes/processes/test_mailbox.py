"""Messages in a store: who sends does not wait, who reads waits so long and no longer."""

import itertools
import math
from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch.distributed as dist

from leadline.instruments.passes.processes import mailbox
from leadline.instruments.passes.processes.mailbox import Mailbox, Message, waiting_time

NAMES = (f"model {number}" for number in itertools.count())


class Clock:
    """A clock that goes on when somebody sleeps."""

    def __init__(self):
        self.now = 0.0
        self.pauses = []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(mailbox, "time", clock)
    return clock


@pytest.fixture
def store():
    return dist.HashStore()


@pytest.fixture
def boxes(store):
    """The mailboxes of three processes that watch the same model."""
    name = next(NAMES)
    boxes = [Mailbox(store, name, rank=rank, count=3) for rank in range(3)]
    for box in boxes:
        box.open({"every": 7})
    return boxes


def test_a_message_arrives_as_it_was_sent(boxes):
    boxes[1].send("sample 1", Message({"why": "so"}, [1.5, -math.inf, 1e-300]))
    there = boxes[0].read("sample 1", 1, until=0.0)
    assert there.facts == {"why": "so"}
    assert list(there.numbers) == [1.5, -math.inf, 1e-300]


def test_not_a_number_arrives_too(boxes):
    boxes[1].send("sample 1", Message({}, [math.nan]))
    assert math.isnan(boxes[0].read("sample 1", 1, until=0.0).numbers[0])


def test_what_the_first_process_says_to_all_is_known_to_all(boxes):
    assert [box.facts for box in boxes] == [{"every": 7}] * 3


def test_a_message_that_never_comes_is_waited_for_until_then(boxes, clock):
    assert boxes[0].read("sample 1", 1, until=3.0) is None
    assert 3.0 <= clock.now < 3.1


def test_looks_become_rarer(boxes, clock):
    boxes[0].read("sample 1", 1, until=3.0)
    assert clock.pauses[0] == 0.0005
    assert max(clock.pauses) == clock.pauses[-1] == 0.05


def test_who_has_left_is_not_waited_for(boxes, clock):
    boxes[1].join()
    boxes[1].leave()
    assert boxes[0].read("sample 1", 1, until=3.0) is None
    assert clock.now == 0.0


def test_who_left_before_the_first_process_began_is_not_waited_for(store, clock):
    name = next(NAMES)
    other = Mailbox(store, name, rank=1, count=2)
    other.open({})
    other.leave()
    first = Mailbox(store, name, rank=0, count=2)
    first.open({})
    assert first.read("sample 1", 1, until=3.0) is None
    assert clock.now == 0.0


def test_what_was_sent_before_the_goodbye_is_read(boxes):
    boxes[1].send("sample 1", Message({}, [2.0]))
    boxes[1].leave()
    assert list(boxes[0].read("sample 1", 1, until=0.0).numbers) == [2.0]


def test_messages_are_collected_once_and_who_is_late_is_silent(boxes, clock):
    boxes[1].send("sample 1", Message({}, [2.0]))
    assert list(boxes[0].collect("sample 1", patience=4.0)) == [1]
    assert 4.0 <= clock.now < 4.1
    assert boxes[0].silent == {2}
    assert not boxes[0].has("sample 1", 1)
    assert boxes[0].collect("sample 2", patience=4.0) == {}
    assert 8.0 <= clock.now < 8.2  # one of them was silent already
    assert boxes[0].silent == {1, 2}


def test_who_is_there_is_known(boxes):
    assert boxes[0].is_here(1)
    boxes[1].leave()
    assert not boxes[0].is_here(1)
    boxes[1].leave()
    assert boxes[0].is_here(2)


def test_the_first_word_of_two_that_exchange_it_stands(boxes):
    boxes[1].mark("answer", "ready")
    assert boxes[0].exchange("answer", 1, "ready", "counted on")
    assert not boxes[1].exchange("answer", 1, "ready", "gone")
    assert boxes[0].word("answer", 1, until=0.0) == "counted on"


def test_a_word_of_before_the_session_is_found(store):
    name = next(NAMES)
    other = Mailbox(store, name, rank=1, count=2)
    other.open({})
    other.mark("answer", "not me")
    first = Mailbox(store, name, rank=0, count=2)
    first.open({})
    assert first.word("answer", 1, until=0.0) == "not me"
    again = Mailbox(store, name, rank=0, count=2)
    again.open({})
    assert again.word("answer", 1, until=0.0) is None


# --- sessions --------------------------------------------------------------------------------------


def _pair(store, name):
    return [Mailbox(store, name, rank=rank, count=2) for rank in (0, 1)]


def test_a_session_that_is_over_is_not_joined_by_the_next_watch(store, clock):
    name = next(NAMES)
    old, other = _pair(store, name)
    old.open({"every": 1})
    old.send("verdict 1", Message())
    old.leave()
    other.open({})
    assert not other.join(until=2.0)
    assert 2.0 <= clock.now < 2.1
    new, _ = _pair(store, name)
    new.open({"every": 2})
    assert other.join()
    assert other.facts == {"every": 2}


def test_a_session_that_was_given_up_unused_is_joined_and_left_by_the_first(store):
    first, other = _pair(store, next(NAMES))
    first.open({})
    first.leave()
    assert other.join()
    assert other.has_left(0)


def test_two_watches_of_one_process_join_two_sessions(store):
    name = next(NAMES)
    (first, other), (second, last) = _pair(store, name), _pair(store, name)
    first.open({"every": 1})
    assert other.join()
    assert not last.join()
    second.open({"every": 2})
    assert last.join()
    assert (other.facts, last.facts) == ({"every": 1}, {"every": 2})


def test_nothing_is_sent_where_there_is_no_session(store):
    _, other = _pair(store, next(NAMES))
    other.send("sample 1", Message())
    assert not other.has_joined
    assert not other.has("sample 1", 1)


# --- how long --------------------------------------------------------------------------------------


def test_a_process_alone_waits_as_long_as_it_likes():
    assert waiting_time(1e9) == 1e9


def test_nobody_waits_for_more_than_a_quarter_of_what_torch_waits(monkeypatch):
    half_a_minute = SimpleNamespace(timeout=timedelta(seconds=30))
    c10d = SimpleNamespace(_get_default_store=lambda: half_a_minute)
    monkeypatch.setattr(mailbox.dist, "distributed_c10d", c10d)
    assert waiting_time(100.0) == 7.5
    assert waiting_time(5.0) == 5.0


def test_a_group_without_a_store_has_none(monkeypatch):
    monkeypatch.setattr(mailbox.dist, "distributed_c10d", SimpleNamespace())
    assert mailbox.process_store() is None
