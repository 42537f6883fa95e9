"""What a watch makes of the losses of odd loops: threads, passes in vain, losses that are not finite."""

import logging
import math
from threading import Barrier, Thread

import pytest
import torch
from torch import nn

from leadline.lab.watch.losses import keeper
from leadline.lab.watch.watch import watch
from tests.twin_runs import batches, rows_of
from tests.watched import tiny_gpt2


def values(one, quantity="train.loss"):
    """By step: the loss, or the sites and values of another quantity."""
    found = {}
    for row in one.record.select(quantity):
        found.setdefault(row.step, []).append(row.value)
    return found


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def test_threads_that_train_at_once_have_losses_of_their_own(tmp_path):
    start, ended = Barrier(3), {}

    def loop(number, *, watched):
        generator = torch.Generator().manual_seed(number)
        model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(6)))
        optimizer = adam(model)
        one = (
            watch(model, optimizer, tmp_path / str(number), every=1000, quiet=True)
            if watched
            else None
        )
        losses = {}
        start.wait()
        for step in range(1, 41):
            loss = number + model(torch.randn(4, 8, generator=generator)).square().mean()
            losses[step] = pytest.approx(loss.item())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if one is not None:
            one.close()
            rows = rows_of(tmp_path / str(number), "train.loss")
            ended[number] = ({step: row.value for step, (row,) in rows.items()}, losses)

    threads = [Thread(target=loop, args=(at,), kwargs={"watched": at < 2}) for at in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ended) == [0, 1]
    assert all(kept == losses for kept, losses in ended.values())


@pytest.mark.parametrize("late", [False, True])
def test_a_sample_is_that_of_the_pass_that_counts(tmp_path, late):
    """An update that is given up, and one whose gradients go before the next forward pass or after."""

    def run(name, *, in_vain):
        model = tiny_gpt2(dropout=0.0)
        optimizer = adam(model)
        with watch(model, optimizer, tmp_path / name, every=1, quiet=True) as one:
            for batch, other in zip(batches(3), batches(3, seed=8), strict=True):
                if in_vain:
                    model(**other).loss.backward()
                    if not late:
                        optimizer.zero_grad()
                loss = model(**batch).loss
                if in_vain and late:
                    optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            assert one.notes == []
            quantities = ("train.loss", "gradient.parameters", "stream.norm", "gradient.stream")
            return [values(one, name) for name in quantities]

    in_vain, plain = run("a", in_vain=True), run("b", in_vain=False)
    # Where gradients go only after the forward pass, the layers of the first one were read already.
    told = 2 if late else 4
    assert in_vain[:told] == plain[:told]
    assert all(sorted(rows) == [1, 2, 3] for rows in in_vain)


@pytest.mark.parametrize("late", [False, True])
def test_two_optimizers_in_turn_have_losses_of_their_own(tmp_path, late):
    """The watch is given the second one: what the first has trained by is no part of its updates.

    Gradients of the first go before the forward pass of the second, or after.
    """

    def run(name, *, by_hand):
        model = tiny_gpt2(dropout=0.0)
        first, second = adam(model), torch.optim.SGD(model.parameters(), lr=1e-2)
        losses = []
        with watch(model, second, tmp_path / name, every=1, quiet=True) as one:
            for batch, other in zip(batches(3), batches(3, seed=8), strict=True):
                loss = 5 * model(**other).loss
                if by_hand:  # as nobody takes for training
                    parameters = list(model.parameters())
                    gradients = torch.autograd.grad(loss, parameters)
                    for parameter, gradient in zip(parameters, gradients, strict=True):
                        parameter.grad = gradient
                else:
                    loss.backward()
                first.step()
                if not late:
                    second.zero_grad()
                loss = model(**batch).loss
                if late:
                    second.zero_grad()
                losses.append(loss.item())
                loss.backward()
                second.step()
                second.zero_grad()
            assert [row for (row,) in values(one).values()] == losses
            return [values(one, name) for name in ("gradient.parameters", "gradient.stream")]

    assert run("a", by_hand=False) == run("b", by_hand=True)


@pytest.mark.parametrize("named", [True, False])
def test_two_optimizers_of_one_loss_share_it(tmp_path, named):
    """One of them is not watched, and steps ahead of the other: the loss is that of both."""
    model = tiny_gpt2(dropout=0.0)
    matrices = [one for one in model.parameters() if one.ndim > 1]
    others = [one for one in model.parameters() if one.ndim < 2]
    first, second = torch.optim.SGD(matrices, lr=0.1), torch.optim.AdamW(others)
    losses = []
    with watch(model, second if named else None, every=1, quiet=True) as one:
        for batch in batches(3):
            loss = model(**batch).loss
            losses.append(loss.item())
            loss.backward()
            for each in (first, second):
                each.step()
            for each in (first, second):
                each.zero_grad()
        one.close()
        assert [row for (row,) in values(one).values()] == losses
        assert [len(rows) for rows in values(one, "gradient.stream").values()] == [3, 3, 3]


def test_optimizers_that_step_inside_of_backward_have_its_loss(tmp_path):
    model = tiny_gpt2(dropout=0.0)
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
    steppers = {one: torch.optim.AdamW([one], lr=1e-2) for one in model.parameters()}

    def step(parameter):
        steppers[parameter].step()
        steppers[parameter].zero_grad()

    for one in model.parameters():
        one.register_post_accumulate_grad_hook(step)
    losses = []
    with watch(model, list(steppers.values()), every=1, quiet=True) as one:
        for at, batch in enumerate(batches(3)):
            loss = model(**batch).loss
            if at == 1:  # backward may fail on the way, and be called again
                handle = model.transformer.h[0].ln_1.weight.register_hook(lambda _: 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    loss.backward()
                handle.remove()
                loss = model(**batch).loss
            losses.append(loss.item())
            loss.backward()
        assert any("inside of backward, where" in note for note in one.notes)
        assert [row for (row,) in values(one).values()][-1] == losses[-1]
        assert [row for (row,) in values(one).values()] == losses


def test_a_hundred_passes_without_a_step_are_said_while_the_loop_runs():
    model, other = nn.Linear(2, 1), nn.Linear(2, 1)
    one = watch(model, torch.optim.SGD(other.parameters(), lr=0.1), every=50, quiet=True)
    real = torch.optim.SGD(model.parameters(), lr=0.1)
    for at in range(150):
        assert any("backward passes" in note for note in one.notes) == (at >= 100)
        model(torch.ones(2)).sum().backward()
        real.step()
    one.close()
    assert [note for note in one.notes if "optimizer" in note] == [
        "100 backward passes and no step of the optimizer was seen so far: is this the optimizer "
        "that the loop steps?"
    ]


def test_a_hundred_micro_batches_later_in_the_run_say_nothing():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with watch(model, optimizer, every=50, quiet=True) as one:
        for passes in (1, 150):
            for _ in range(passes):
                model(torch.ones(2)).sum().backward()
            optimizer.step()
        assert not [note for note in one.notes if "backward passes" in note]


def exchanged(updates, *, every=50):
    """Three updates of the optimizer that was given, and then those of another one."""
    model = nn.Linear(2, 1)
    first = optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one = watch(model, first, every=every, quiet=True)
    for at in range(3 + updates):
        if at == 3:
            optimizer = torch.optim.AdamW(model.parameters())
        model(torch.ones(2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return one


@pytest.mark.parametrize(("updates", "while_it_runs"), [(1, False), (99, False), (100, True)])
def test_an_optimizer_that_is_exchanged_in_the_loop_is_told(updates, while_it_runs):
    one = exchanged(updates)

    def sentences():
        return [note for note in one.notes if "anatomy" not in note]

    assert bool(sentences()) == while_it_runs
    one.close()
    assert one.step == 3
    assert sentences() == [
        "Update 3 was the last one of the optimizer that was given; since then an optimizer that the "
        "watch was not given moves the model. Of its updates nothing is read: give all optimizers in "
        "a list, or None for whichever steps the model."
    ]


def test_two_optimizers_in_turn_are_no_exchange():
    model = nn.Linear(2, 1)
    ours, other = (torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(2))
    with watch(model, ours, every=50, quiet=True) as one:
        for optimizer in [other, other, ours] * 3 + [other, other]:
            model(torch.ones(2)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert one.step == 3
    assert not [note for note in one.notes if "was not given" in note]


def test_a_loss_that_is_not_finite_is_said_at_once_and_the_next_update_is_sampled(tmp_path, caplog):
    model = tiny_gpt2(dropout=0.0)
    optimizer = adam(model)
    with watch(model, optimizer, tmp_path / "a", every=100) as one:
        for step, batch in enumerate(batches(6), start=1):
            loss = model(**batch).loss
            (loss * (math.inf if step in (3, 4) else 1.0)).backward()
            if step in (3, 4):
                optimizer.zero_grad(set_to_none=False)  # the update is made all the same
            with caplog.at_level(logging.WARNING, logger="leadline.watch"):
                optimizer.step()
            optimizer.zero_grad()
            said = [one.getMessage() for one in caplog.records if "the loss" in one.getMessage()]
            assert [line for line in said if line.endswith("the loss is not finite")] == (
                ["leadline.watch: step 3: the loss is not finite"] if step >= 3 else []
            )
        assert sorted(values(one, "weights.update_ratio")) == [1, 4]


def test_losses_that_are_written_between_samples_reach_the_sinks(tmp_path, monkeypatch):
    monkeypatch.setattr(keeper, "MOST_UPDATES", 2)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    sent = tmp_path / "run.csv"
    sinks = [f"csv(path={sent})"]
    one = watch(model, optimizer, tmp_path / "a", every=1000, sinks=sinks, quiet=True)
    for _ in range(6):
        model(torch.ones(2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    one.close()
    steps = [
        line.split(",")[0] for line in sent.read_text().splitlines() if "leadline/loss" in line
    ]
    assert steps == ["1", "2", "3", "4", "5", "6"]
