"""A watch ends with its model, with its process and with its block, and leaves a forked one alone."""

import copy
import gc
import os
import weakref

import pytest
import torch
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

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


@pytest.mark.parametrize("named", [True, False], ids=["its optimizer", "whichever steps"])
@pytest.mark.parametrize("probe", [None, torch.arange(16).view(2, 8)], ids=["", "a fixed batch"])
def test_a_watch_that_nobody_closes_ends_with_its_model(tmp_path, capsys, named, probe):
    path = tmp_path / "run.leadline"
    model, optimizer = make()
    watch(model, optimizer if named else None, path, every=2, probe=probe)
    gc.collect()
    for seed in range(3):
        if not named:  # the model alone keeps it alive
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
            gc.collect()
        update(model, optimizer, seed)
    alive = weakref.ref(model)
    del model, optimizer
    gc.collect()
    assert alive() is None
    assert not _global_optimizer_pre_hooks
    assert not _global_optimizer_post_hooks
    assert "Watched 3 updates" in capsys.readouterr().err
    with Record.open(path) as record:
        assert record.provenance["watch"]["closed"] is True
        assert [row.step for row in record.select("train.loss")] == [1, 2, 3]


def test_a_model_that_keeps_a_watch_alive_is_copied_and_saved_without_it(tmp_path):
    model, optimizer = make()
    with watch(model, None, every=5, quiet=True) as one:
        for seed in range(2):
            update(model, optimizer, seed)
        torch.save(model, tmp_path / "model.pt")
        copied = copy.deepcopy(model)
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    for other in (copied, loaded):
        assert not [
            value
            for value in vars(other).values()
            if value is not None and "leadline" in repr(type(value))
        ]
        update(other, torch.optim.AdamW(other.parameters()))
    assert one.step == 2
    assert sorted(vars(model)) == sorted(vars(make()[0]))


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


def test_the_log_line_of_a_warning_says_whose_it_is_and_the_likely_cause(tmp_path, caplog):
    model, _ = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
    with watch(model, optimizer, tmp_path / "run.leadline", every=1) as one:
        for seed in range(3):
            one.batch(f"rows {seed}")
            update(model, optimizer, seed)
    (warning,) = one.warnings
    (line,) = [text for text in caplog.messages if "G14" in text]
    assert line.startswith(f"leadline.watch: step {warning.details['step']}: G14 ")
    assert f"{warning.verdict} Likely: {warning.cause}. {warning.remedy['words']} Batches: " in line
