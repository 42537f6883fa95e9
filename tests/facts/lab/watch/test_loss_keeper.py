"""The losses of an update are told from other values, added up, and kept until somebody reads them."""

import math

import pytest
import torch
from torch import nn

from leadline.lab.watch import loss_keeper
from leadline.lab.watch.loss_keeper import LossKeeper
from leadline.lab.watch.losses import BackwardCall, LossScale


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
