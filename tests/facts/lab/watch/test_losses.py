"""Losses are heard where backward is called, whoever calls it, and originals come back."""

import operator

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from leadline.lab.watch.losses.calls import NEAREST, listen_to_losses

ORIGINAL = torch.autograd.backward


def heard(run):
    """What is heard while `run` is called."""
    calls = []
    end = listen_to_losses(calls.append)
    try:
        run()
    finally:
        end()
    assert torch.autograd.backward is ORIGINAL
    return calls


def square(x):
    return (x * x).sum()


def test_every_scalar_on_which_backward_is_called_is_heard():
    x = nn.Parameter(torch.tensor([1.0, 2.0]))

    def run():
        square(x).backward()
        torch.autograd.backward(3 * square(x))
        square(x).reshape(1, 1).backward()

    calls = heard(run)
    assert [call.value.item() for call in calls] == [5.0, 15.0, 5.0]
    assert not any(call.value.requires_grad for call in calls)
    assert x.grad.tolist() == [10.0, 20.0]


def test_calls_with_gradients_of_their_own_are_no_losses():
    x = nn.Parameter(torch.tensor([1.0, 2.0]))

    def run():
        square(x).backward(torch.tensor(2.0))
        (x * x).backward(torch.ones(2))
        torch.autograd.grad(square(x), x)
        checkpoint(square, x, use_reentrant=True).backward()

    assert [call.value.item() for call in heard(run)] == [5.0]


def test_two_listeners_hear_the_same_and_the_originals_come_back_with_the_last():
    x = nn.Parameter(torch.tensor([2.0]))
    first, second = [], []
    end_first = listen_to_losses(first.append)
    end_second = listen_to_losses(second.append)
    square(x).backward()
    end_first()
    end_first()  # once more does nothing
    square(x).backward()
    assert torch.autograd.backward is not ORIGINAL
    end_second()
    assert (len(first), len(second)) == (1, 2)
    assert torch.autograd.backward is ORIGINAL


def test_what_somebody_else_has_wrapped_meanwhile_is_left_and_falls_silent():
    x = nn.Parameter(torch.tensor([2.0]))
    early, late = [], []
    end = listen_to_losses(early.append)
    ours = torch.autograd.backward

    def theirs(*args, **kwargs):
        return ours(*args, **kwargs)

    torch.autograd.backward = theirs
    try:
        end()
        assert torch.autograd.backward is theirs
        end = listen_to_losses(late.append)  # around the older one
        square(x).backward()
        end()
    finally:
        torch.autograd.backward = ORIGINAL
    assert (len(early), len(late)) == (0, 1)
    assert x.grad.item() == 4.0


def test_an_error_of_backward_is_the_loops_own():
    x = nn.Parameter(torch.tensor([2.0]))
    y = square(x)
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        heard(y.backward)
    assert torch.autograd.backward is ORIGINAL


def test_a_scaled_loss_is_known_to_be_scaled_and_an_update_of_the_scaler_is_told():
    x = nn.Parameter(torch.tensor([2.0]))
    optimizer = torch.optim.SGD([x], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
    calls, skips = [], []
    end = listen_to_losses(calls.append, skip=skips.append)
    scaler.scale(square(x)).backward()
    scaler.step(optimizer)
    scaler.update()
    square(x).backward()
    end()
    assert [call.value.item() for call in calls] == [64.0, pytest.approx(1.6**2)]
    assert [None if call.scale is None else call.scale.item() for call in calls] == [16.0, None]
    assert calls[0].loss.item() == 4.0
    assert skips == [id(scaler)]


def test_a_list_of_losses_may_be_scaled_too():
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    x = nn.Parameter(torch.tensor([2.0]))
    end = listen_to_losses(lambda call: None)
    assert [one.item() for one in scaler.scale([square(x), x.sum()])] == [16.0, 8.0]
    end()


def test_several_losses_at_once_are_one():
    x = nn.Parameter(torch.tensor([1.0, 2.0]))
    calls = heard(lambda: torch.autograd.backward([square(x), x.sum().reshape(1)]))
    assert [call.value.item() for call in calls] == [8.0]
    assert x.grad.tolist() == [3.0, 5.0]
    assert heard(lambda: torch.autograd.backward((x * x, x.sum()), (x, None))) == []


def test_listeners_may_come_and_go_while_others_are_called():
    x = nn.Parameter(torch.tensor([2.0]))
    called, ends = [], []

    def leave(call):
        called.append("first")
        ends[0]()

    ends += [listen_to_losses(leave), listen_to_losses(lambda call: called.append("second"))]
    square(x).backward()
    square(x).backward()
    ends[1]()
    assert called == ["first", "second", "second"]
    assert torch.autograd.backward is ORIGINAL


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripts_take_the_wrapper_for_what_it_wraps():
    def function(x: torch.Tensor):
        y = (x * x).sum()
        torch.autograd.backward([y])
        return y

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    end = listen_to_losses(lambda call: None)
    ours = torch.autograd.backward
    assert torch.jit.script(function)(x).item() == 5.0
    end()
    assert x.grad.tolist() == [2.0, 4.0]
    # An identity is given out again, to any function.
    assert torch.jit._builtins._find_builtin(ours) is None
    assert torch.jit._builtins._find_builtin(ORIGINAL) == "aten::backward"


def half(scaler, one, other):
    return [scaler.scale(one) / 2]


def added(scaler, one, other):
    return [scaler.scale(one) + 3 * scaler.scale(other)]


def listed(scaler, one, other):
    return [scaler.scale([one, other])]


def drawn(scaler, one, other):
    return [list(scaler.scale(each for each in (one, other)))]


def beside_another(scaler, one, other):
    return [scaler.scale(one) + other]


def deep(scaler, one, other):
    for _ in range(NEAREST):
        one = one * 1.0
    return [scaler.scale(one), one]


@pytest.mark.parametrize(
    ("scaled", "losses"),
    [
        (half, [1.0]),
        (added, [2.0 + 3 * 5.0]),
        (listed, [7.0]),
        (drawn, [7.0]),
        (beside_another, [2.0 + 5.0 / 16]),
        (deep, [2.0, 2.0]),
    ],
)
def test_a_scale_is_known_whatever_is_done_to_a_scaled_loss_before_backward(scaled, losses):
    """The loss is the one whose gradient the scaler leaves when it has divided by its factor."""
    assert NEAREST == 64
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
    x = nn.Parameter(torch.tensor(1.0))

    def run():
        for value in scaled(scaler, 2 * x, 5 * x):
            torch.autograd.backward(value, retain_graph=True)

    calls = heard(run)
    assert [call.loss.item() for call in calls] == losses
    scales = [1.0 if call.scale is None else 16.0 for call in calls]
    # Every loss is linear in x, which is 1: so it is its own gradient.
    assert x.grad.item() == sum(map(operator.mul, losses, scales))
