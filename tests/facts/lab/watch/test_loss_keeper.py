"""The losses of an update are told from other values, added up, and kept until somebody reads them."""

import gc
import math
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from leadline.errors import InputError
from leadline.lab.watch.losses import keeper as loss_keeper
from leadline.lab.watch.losses import witnesses
from leadline.lab.watch.losses.calls import BackwardCall, LossScale
from leadline.lab.watch.losses.keeper import LossKeeper
from leadline.lab.watch.losses.witnesses import Witnesses


def hear(keeper, call):
    """A backward pass that reaches no parameter."""
    done = keeper.hear(call)
    if done is not None:
        done()


def call(value, scale=None, scaler=1):
    scaled = None if scale is None else LossScale(torch.tensor(scale), scaler)
    return BackwardCall(torch.tensor(value), scaled)


def steps(keeper):
    return [(row.step, row.value) for row in keeper.readings()]


def test_losses_of_an_update_are_added_up_and_read_once():
    keeper = LossKeeper()
    for value in (1.0, 2.0):
        hear(keeper, call(value))
    keeper.end_update(5)
    keeper.end_update(6)  # an update without a backward pass
    hear(keeper, call(8.0, 4.0))
    keeper.end_update(7)
    assert keeper.last(7) == 2.0
    assert math.isnan(keeper.last(6))
    assert steps(keeper) == [(5, 3.0), (7, 2.0)]
    assert steps(keeper) == []


def test_calls_that_touch_no_gradient_of_the_model_are_left_out_if_others_do():
    model, other = nn.Linear(2, 1), nn.Linear(2, 1)
    keeper = LossKeeper(model)

    def backward(module, factor):
        loss = factor * module(torch.ones(2)).sum()
        done = keeper.hear(BackwardCall(loss.detach()))
        loss.backward()
        done()
        return loss.item()

    expected = backward(model, 1.0)
    backward(other, 100.0)
    expected += backward(model, 2.0)  # into a gradient that is there already
    assert len(keeper.end_update(1)) == 2
    backward(other, 100.0)
    assert len(keeper.end_update(2)) == 1  # nobody touches it: gradients may be kept elsewhere
    assert steps(keeper)[0] == (1, pytest.approx(expected))


def test_what_a_scaler_skipped_is_forgotten_and_what_others_scaled_is_not():
    keeper = LossKeeper()
    hear(keeper, call(1.0, 2.0, scaler=1))
    assert not keeper.skip(2)
    assert keeper.skip(1)
    assert not keeper.skip(1)
    hear(keeper, call(6.0, 2.0, scaler=1))
    keeper.end_update(1)
    assert steps(keeper) == [(1, 3.0)]


def test_a_loss_without_a_scale_is_divided_where_the_scaler_divides_its_gradients():
    """w gets the gradient of both losses, and the scaler divides what is there; v gets that of one."""
    model = nn.ParameterDict({"w": nn.Parameter(torch.ones(2)), "v": nn.Parameter(torch.ones(2))})
    keeper, said = LossKeeper(model), []
    keeper.on_unscaled = lambda: said.append(True)
    scale = LossScale(torch.tensor(16.0), 1)

    def backward(name, factor, scaled=None):
        loss = factor * model[name].sum() * (1.0 if scaled is None else scaled.factor)
        done = keeper.hear(BackwardCall(loss.detach(), scaled))
        loss.backward()
        done()

    backward("w", 1.0, scale)
    backward("v", 3.0)
    keeper.end_update(1)
    assert not said
    backward("w", 1.0, scale)
    backward("w", 3.0)
    keeper.end_update(2)
    assert said == [True]
    assert steps(keeper) == [(1, 2.0 + 6.0), (2, 2.0 + 6.0 / 16)]
    assert (model["w"].grad / 16).tolist() == [2 * 1 + 3 / 16] * 2


def test_a_named_loss_counts_in_place_of_all_others():
    keeper = LossKeeper()
    hear(keeper, call(100.0))
    keeper.name(torch.tensor(1.5, requires_grad=True))
    keeper.name(2)
    keeper.end_update(1)
    hear(keeper, call(7.0))
    keeper.end_update(2)
    assert steps(keeper) == [(1, 3.5), (2, 7.0)]


def test_the_keeper_does_not_grow_without_an_end():
    assert (loss_keeper.MOST_CALLS, loss_keeper.MOST_UPDATES) == (10_000, 1000)
    keeper = LossKeeper()
    for at in range(loss_keeper.MOST_CALLS + 5):
        hear(keeper, call(float(at)))
    assert len(keeper.end_update(1)) == loss_keeper.MOST_CALLS
    for step in range(2, loss_keeper.MOST_UPDATES + 1):
        assert not keeper.full
        hear(keeper, call(1.0))
        keeper.end_update(step)
    assert keeper.full
    keeper.readings()
    assert not keeper.full


def test_a_named_loss_is_a_copy_and_one_number():
    keeper = LossKeeper()
    value = torch.tensor(2.0, dtype=torch.float64)
    keeper.name(value)
    value.mul_(100.0)
    keeper.end_update(1)
    assert steps(keeper) == [(1, 2.0)]
    with pytest.raises(InputError, match=r"tensor of shape \(3,\)"):
        keeper.name(torch.ones(3))


# --- what a backward pass reached, and what became of it -------------------------------------------


class Loop:
    """A model and a keeper that hears its backward passes."""

    def __init__(self):
        self.model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(3)))
        self.keeper = LossKeeper(self.model)

    def backward(self, value, module=None):
        """A pass whose loss is this value."""
        loss = (self.model if module is None else module)(torch.ones(2)).sum()
        loss = loss - loss.detach() + value
        done = self.keeper.hear(BackwardCall(loss.detach()))
        loss.backward()
        if done is not None:
            done()

    def loss(self):
        """The loss of an update that ends now."""
        self.keeper.end_update(1)
        kept = steps(self.keeper)
        return kept[0][1] if kept else None

    def clear(self, *parts, in_place):
        for part in parts or (self.model,):
            part.zero_grad(set_to_none=not in_place)


def test_an_auxiliary_loss_that_reaches_one_parameter_counts():
    deep = nn.Sequential(*(nn.Linear(2, 2) for _ in range(40)))
    loop = Loop()
    loop.model, loop.keeper = deep, LossKeeper(deep)
    loop.backward(1.0)
    for at in range(40):
        loop.backward(1.0, deep[at])
    assert loop.loss() == 41.0


@pytest.mark.parametrize("in_place", [False, True])
def test_a_loss_whose_gradient_is_thrown_away_is_none(in_place):
    loop = Loop()
    loop.clear(in_place=in_place)
    loop.backward(1.0)
    loop.backward(2.0)
    loop.clear(in_place=in_place)
    loop.backward(4.0)
    loop.backward(8.0)
    assert loop.loss() == 12.0
    loop.clear(in_place=in_place)  # behind the update, as loops do
    loop.backward(1.0)
    assert loop.loss() == 1.0


@pytest.mark.parametrize("in_place", [False, True])
def test_a_loss_of_which_some_gradients_are_left_counts(in_place):
    loop = Loop()
    first, second, third = loop.model
    loop.backward(1.0)
    loop.backward(2.0, first)
    loop.clear(first, in_place=in_place)
    loop.backward(4.0)
    assert loop.loss() == 5.0
    loop.clear(in_place=in_place)
    loop.backward(1.0)
    loop.clear(first, second, in_place=in_place)
    loop.clear(third, in_place=in_place)
    loop.backward(2.0)
    assert loop.loss() == 2.0


def test_what_is_taken_away_bit_by_bit_is_gone_in_the_end():
    loop = Loop()
    first, second, third = loop.model
    loop.backward(1.0)
    for part in (first, second, third):
        loop.clear(part, in_place=False)
        loop.backward(2.0, part)
    assert loop.loss() == 6.0


def test_gradients_that_are_clipped_averaged_or_exchanged_in_between_are_still_there():
    loop = Loop()
    loop.backward(1.0)
    nn.utils.clip_grad_norm_(loop.model.parameters(), 0.1)
    loop.backward(2.0)
    for one in loop.model.parameters():
        one.grad = one.grad / 2
    loop.backward(4.0)
    assert loop.loss() == 7.0


def test_weights_that_move_while_gradients_are_kept_change_nothing():
    loop = Loop()
    loop.backward(1.0)
    with torch.no_grad():
        for one in loop.model.parameters():
            one.add_(0.1)
    loop.backward(2.0)
    assert loop.loss() == 3.0


def test_a_pass_from_moved_weights_is_no_loss_where_the_gradients_before_it_are_gone():
    loop = Loop()
    for _ in range(2):
        loop.backward(1.0)
        loop.backward(2.0)  # two micro-batches
        with torch.no_grad():
            for one in loop.model.parameters():
                one.add_(0.1)
        loop.clear(in_place=False)
        loop.backward(4.0)
        loop.backward(8.0)
        assert loop.loss() == 3.0


def test_all_that_was_heard_may_be_thrown_away_before_the_next_pass():
    loop = Loop()
    assert not loop.keeper.look()
    loop.backward(1.0)
    assert not loop.keeper.look()
    loop.clear(in_place=False)
    assert loop.keeper.look()
    assert not loop.keeper.look()
    assert loop.loss() is None


def test_a_failed_pass_is_no_loss():
    loop = Loop()
    loop.keeper.hear(call(100.0))
    loop.backward(1.0)
    assert loop.loss() == 1.0
    loop.keeper.hear(call(100.0))
    assert loop.loss() is None


def test_parameters_that_were_exchanged_are_found_again():
    loop = Loop()
    loop.backward(1.0)
    assert loop.loss() == 1.0
    loop.model[2] = nn.Linear(2, 2)
    loop.model[1] = nn.Linear(2, 2)
    loop.model[0] = nn.Linear(2, 2)
    loop.backward(2.0)
    other = nn.Linear(2, 2)
    assert loop.loss() == 2.0  # nothing told, so every value counts
    loop.backward(4.0)
    loop.backward(100.0, other)
    assert loop.loss() == 4.0


def test_values_that_are_not_read_wait_on_their_device_and_looks_at_gradients_end(monkeypatch):
    one = Witnesses(nn.Linear(2, 2))
    # As on a device for which the loop would have to wait.
    monkeypatch.setattr(witnesses, "_waits", lambda gradient: True)
    for parameter in one._parameters:
        parameter.grad = torch.ones_like(parameter)
    looks = []
    monkeypatch.setattr(witnesses, "_is_zero", lambda gradient: looks.append(1) or False)
    for _ in range(witnesses.MOST_LOOKS + 3):
        assert one.zeroed([0]) == set()
    assert len(looks) == witnesses.MOST_LOOKS


def test_gradients_without_dense_numbers_are_looked_at_too():
    model = nn.Embedding(4, 2, sparse=True)
    model(torch.tensor([1])).sum().backward()
    one = Witnesses(model)
    assert one.zeroed([0]) == set()
    model.weight.grad.mul_(0.0)
    assert one.zeroed([0]) == {0}


def test_a_loss_that_is_not_finite_is_told_where_it_begins():
    keeper, told = LossKeeper(), []
    keeper.on_not_finite = told.append
    for step, value in enumerate([1.0, math.nan, math.inf, 2.0, math.inf], start=1):
        hear(keeper, call(value))
        keeper.end_update(step)
    assert told == [2, 5]


# --- threads ---------------------------------------------------------------------------------------


def elsewhere(function, *args):
    """Call a function in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *args).result()


def test_gradients_are_looked_at_in_the_thread_that_trains_alone(monkeypatch):
    loop = Loop()
    looked = []
    for name in ("gradients", "weights", "call_again"):
        monkeypatch.setattr(
            loop.keeper._witnesses, name, lambda name=name: looked.append(name) or [None]
        )
    assert elsewhere(loop.keeper.hear, call(100.0)) is None
    assert not elsewhere(loop.keeper.look)
    assert looked == []
    assert loop.keeper.hear(call(1.0)) is not None
    assert looked


def test_losses_are_those_of_the_thread_that_steps():
    loop = Loop()
    loop.backward(1.0)
    elsewhere(loop.keeper.hear, call(100.0))
    assert loop.loss() == 1.0
    loop.backward(1.0)

    def other():
        loop.backward(2.0)
        return loop.loss()

    assert elsewhere(other) == 2.0  # a loop may go on in another thread
    assert elsewhere(loop.keeper.skip, 1) is False


def test_a_model_that_is_called_in_another_thread_is_trained_there():
    loop = Loop()

    def other():
        loop.keeper.follow()
        loop.backward(2.0)
        loop.backward(100.0, nn.Linear(2, 2))
        return loop.loss()

    assert elsewhere(other) == 2.0


# --- room ------------------------------------------------------------------------------------------


def grown(loop, *, times, rest):
    """By how many blocks of memory so many repetitions grow it, after a `rest` of them."""
    for _ in range(rest):
        loop()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(times):
        loop()
    gc.collect()
    return sys.getallocatedblocks() - before


@pytest.mark.slow
@pytest.mark.parametrize("stepped", [True, False])
def test_twenty_thousand_updates_take_no_more_room_than_some(stepped):
    loop = Loop()
    optimizer = torch.optim.SGD(loop.model.parameters(), lr=1e-3)

    def update():
        loop.backward(1.0)
        optimizer.step()
        optimizer.zero_grad()
        if stepped:
            loop.keeper.end_update(1)
            if loop.keeper.full:
                loop.keeper.readings()

    rest = loss_keeper.MOST_UPDATES if stepped else loss_keeper.MOST_CALLS
    assert grown(update, times=20_000, rest=rest) < 1000
