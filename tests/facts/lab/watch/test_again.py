"""A loop that is run again in one process, as notebooks do, is watched again."""

import contextlib

import torch

import leadline as ll
from leadline.record import Record


def run(path, *, updates, fails=False):
    model = ll.Transformer(depth=2, width=16, heads=2, vocabulary=20, context=8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    watch = ll.watch(model, optimizer, path, every=1, quiet=True)
    for _ in range(updates):
        model(torch.randint(0, 20, (2, 8))).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    if fails:
        raise ZeroDivisionError
    return watch


def test_a_watch_that_an_error_left_open_makes_room_for_the_next(tmp_path):
    path = tmp_path / "run.leadline"
    with contextlib.suppress(ZeroDivisionError):
        run(path, updates=3, fails=True)
    second = run(path, updates=2)
    assert second.active
    second.close()
    with Record.open(path) as record:
        attempts = record.provenance["watch"]["attempts"]
        steps = {reading.step for reading in record.select("train.loss", run=attempts[0]["run"])}
    assert [one["first"] for one in attempts] == [1, 1]
    assert steps == {1, 2, 3}
