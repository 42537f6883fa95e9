"""What the handler of a signal raises reaches the loop, also where it has hit the watch."""

import signal
from functools import partial

import pytest
import torch

from leadline.lab.watch.fence import Fence
from leadline.lab.watch.sampling.collector import SampleCollector
from leadline.lab.watch.watch import watch
from tests.twin_runs import batches
from tests.watched import tiny_gpt2


class Preempted(Exception):
    """The cluster takes the machine back."""


class Handler:
    def __call__(self, *_):
        raise Preempted

    def method(self, *_):
        raise Preempted


def function(*_):
    raise Preempted


HANDLERS = {
    "a function": function,
    "a method": Handler().method,
    "an object": Handler(),
    "a partial": partial(function, 1),
}


@pytest.fixture(params=HANDLERS)
def handled(request):
    before = signal.signal(signal.SIGUSR1, HANDLERS[request.param])
    yield
    signal.signal(signal.SIGUSR1, before)


def interrupt(*_args, **_options):
    signal.raise_signal(signal.SIGUSR1)


@pytest.mark.usefixtures("handled")
def test_every_guard_lets_it_pass():
    fence = Fence(quiet=True)
    for guarded in (
        fence.guard("Reading", interrupt),
        fence.lenient("Telling", interrupt),
        fence.shield(interrupt),
    ):
        with pytest.raises(Preempted):
            guarded()
    assert fence.notes == []
    assert not fence.off


def test_the_same_error_without_a_signal_is_a_fault():
    fence = Fence(quiet=True)
    assert fence.guard("Reading", function)() is None
    assert "Preempted" in fence.notes[0]


@pytest.mark.usefixtures("handled")
def test_a_loop_hears_it_and_goes_on(monkeypatch):
    model = tiny_gpt2()
    optimizer = torch.optim.AdamW(model.parameters())
    heard = []
    with watch(model, optimizer, every=1, quiet=True) as one:
        for step, batch in enumerate(batches(4)):
            with monkeypatch.context() as patch:
                if step == 1:
                    patch.setattr(SampleCollector, "stream", interrupt)
                try:
                    model(**batch).loss.backward()
                except Preempted:
                    heard.append(step)
                    continue
            optimizer.step()
            optimizer.zero_grad()
        assert heard == [1]
        assert (one.notes, one.step) == ([], 3)
        assert sorted({row.step for row in one.record.select("stream.norm")}) == [1, 2, 3]
