"""What a sample says of streams that are zero, and of probes that fail."""

import math

import torch

import leadline
from leadline.lab.watch.gauges import LayerGauges
from leadline.lab.watch.watch import watch
from tests.plain_gpt import PlainGPT


def watched(model, passes=1, updates=1, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one = watch(model, optimizer, every=1, quiet=True, **options)
    for _ in range(updates):
        for _ in range(passes):
            model(torch.zeros(2, 5, dtype=torch.long)).logsumexp(-1).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    one.close()
    return one


def test_no_head_room_above_a_stream_that_is_zero():
    torch.manual_seed(0)
    model = PlainGPT(["none", "none"], positions="none")
    anatomy = leadline.anatomy_of(model, torch.zeros(2, 5, dtype=torch.long))
    torch.nn.init.zeros_(model.wte.weight)
    one = watched(model, anatomy=anatomy)
    largest = {row.site.layer: row.value for row in one.record.select("stream.largest")}
    room = {row.site.layer: row.value for row in one.record.select("stream.float16_room")}
    assert sorted(largest) == [0, 1, 2]
    assert largest[0] == 0 and largest[1] > 0
    assert sorted(room) == [1, 2] and all(map(math.isfinite, room.values()))


def test_a_broken_probe_is_one_fault_of_an_update(monkeypatch):
    calls = []

    def fail(*_):
        calls.append(1)
        raise RuntimeError("of the probe")

    monkeypatch.setattr(LayerGauges, "stream", fail)
    torch.manual_seed(0)
    one = watched(PlainGPT(["none", "none"]), passes=4, updates=2)
    assert len(calls) == 2  # once in every update
    assert not any("switched itself off" in note for note in one.notes)
