"""A watch ends with its model, with its process and with its block, and leaves a forked one alone."""

import gc
import os
import weakref

import pytest
import torch

from leadline.lab.watch.watch import watch
from leadline.record import Record
from tests.plain_gpt import PlainGPT


def make():
    torch.manual_seed(0)
    model = PlainGPT(["none", "none"]).train()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def update(model, optimizer, seed=0):
    tokens = torch.randint(97, (2, 8), generator=torch.Generator().manual_seed(seed))
    loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def fail(_):
    return 1 / 0


def test_a_watch_that_nobody_closes_ends_with_its_model(tmp_path, capsys):
    path = tmp_path / "run.leadline"
    model, optimizer = make()
    watch(model, optimizer, path, every=2)
    for seed in range(3):
        update(model, optimizer, seed)
    alive = weakref.ref(model)
    del model, optimizer
    gc.collect()
    assert alive() is None
    assert "Watched 3 updates" in capsys.readouterr().err
    with Record.open(path) as record:
        assert record.provenance["watch"]["closed"] is True
        assert [row.step for row in record.select("train.loss")] == [1, 2, 3]


def test_a_block_that_ends_by_an_exception_says_so_in_the_record(tmp_path):
    path = tmp_path / "run.leadline"
    model, optimizer = make()
    one = watch(model, optimizer, path, every=1)
    with pytest.raises(ZeroDivisionError), one:
        fail(update(model, optimizer))
    with Record.open(path) as record:
        (attempt,) = record.provenance["watch"]["attempts"]
    assert attempt["ended"] == "error"
    assert attempt["error"] == "ZeroDivisionError: division by zero."


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_writes_nothing(tmp_path):
    path = tmp_path / "run.leadline"
    model, optimizer = make()
    one = watch(model, optimizer, path, every=1)
    update(model, optimizer)
    before = path.read_bytes()
    child = os.fork()
    if child == 0:  # what a worker does: it ends by sys.exit, which runs what atexit knows
        code = 1
        try:
            one.close()
            code = int(one.active)
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert path.read_bytes() == before
    assert one.active
    update(model, optimizer, 1)
    one.close()
    with Record.open(path) as record:
        assert [row.step for row in record.select("train.loss")] == [1, 2]


def test_a_watch_may_be_closed_by_what_a_warning_calls(tmp_path):
    model, optimizer = make()
    calls = []

    def on_warning(finding):
        calls.append(finding.code)
        one.close()

    one = watch(model, optimizer, tmp_path / "a", every=1, on_warning=on_warning)
    update(model, optimizer)
    with torch.no_grad():
        model.blocks[1].mlp[0].weight.fill_(float("nan")) if hasattr(model, "blocks") else next(
            model.parameters()
        ).fill_(float("nan"))
    update(model, optimizer, 1)
    assert calls
    assert not one.active
    update(model, optimizer, 2)
    assert one.step == 2
    one.close()
    update(model, optimizer, 3)
    assert not optimizer._optimizer_step_post_hooks
    assert not optimizer._optimizer_step_pre_hooks


def test_two_models_do_not_write_one_file(tmp_path):
    path = tmp_path / "run.leadline"
    model, optimizer = make()
    first = watch(model, optimizer, path, every=1)
    other = torch.nn.Linear(2, 2)
    second = watch(other, torch.optim.SGD(other.parameters(), lr=0.1), path)
    assert "another model in this process" in second.notes[0]
    assert first.active
    assert not second.active
    again = watch(model, optimizer, path, every=1)
    assert not first.active
    assert "it has ended" in again.notes[0]
    again.close()


def test_options_of_a_watch_that_was_refused_can_be_asked(tmp_path):
    model, optimizer = make()
    one = watch(model, optimizer, tmp_path / "no" / "such" / "folder", every=7)
    assert not one.active
    assert (one.every, one.step, one.path, one.record, one.warnings) == (7, 0, None, None, [])
    one.loss(1.0)
    one.batch("x")
    one.close()
    assert one.overhead.updates == 0
