"""The factor between backward and the step is told only where there is one, and the words follow."""

import math

import pytest
import torch
from torch import nn

from leadline.lab.watch.losses.calls import BackwardCall, LossScale
from leadline.lab.watch.watch import watch
from leadline.lab.watch.weights import tracer
from leadline.lab.watch.weights.tracer import Trace, Tracer


def test_constants():
    """Numbers that were chosen: a change is a decision."""
    assert (tracer.SIZE, tracer.FOLLOWED, tracer.LEAST) == (4096, 24, 2)
    assert (tracer.UNCLIPPED, tracer.ALIKE, tracer.ALIKE_IN_HALF) == (1e-4, 1e-4, 1e-2)


# --- one update by hand --------------------------------------------------------------------------


def traced(change, *, scale=1.0, modules=4, dtype=torch.float32):
    """What is told after backward left gradients, times `scale`, and `change` was applied."""
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(modules))).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(0)
    one = Tracer(model)
    one.arm()
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator).to(dtype) * scale
    one.after_backward()
    change(model)
    one.take(optimizer)
    scaled = None if scale == 1.0 else LossScale(torch.tensor(scale), 0)
    return one.trace([BackwardCall(torch.tensor(1.0), scaled)])


def multiply(factor):
    def change(model):
        for parameter in model.parameters():
            parameter.grad.mul_(factor)

    return change


def test_the_factor_of_clipping():
    assert traced(multiply(1.0)) == Trace(1.0)
    assert traced(multiply(0.25)).factor == pytest.approx(0.25)
    assert traced(multiply(1.0 + 5e-5)).factor == 1.0
    assert traced(multiply(1.0 - 2e-4)).factor == pytest.approx(1.0 - 2e-4)
    assert traced(multiply(0.25 / 1024), scale=1024.0).factor == pytest.approx(0.25)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rounding_in_half_precision_does_not_hide_a_factor(dtype):
    assert traced(multiply(0.3), dtype=dtype).factor == pytest.approx(0.3, rel=5e-3)


def only(where, do):
    """Change the gradients of the parameters whose number is in a range."""

    def change(model):
        for at, parameter in enumerate(model.parameters()):
            if at in where:
                do(parameter.grad)

    return change


@pytest.mark.parametrize(
    "change",
    [
        only(range(2), lambda g: g.mul_(0.5)),  # one group was clipped
        only(range(0, 8, 2), lambda g: g.mul_(0.5)),  # all matrices, and no vector
        only(range(8), lambda g: g.clamp_(-0.5, 0.5)),
        only(range(8), lambda g: g.add_(0.02 * torch.randn(g.shape))),  # longer by 2e-4 alone
        only(range(8), lambda g: g.copy_(g.flip(0))),  # as long as before
        only(range(8), lambda g: g.neg_()),
        only(range(8), lambda g: g.zero_()),
        only(range(8), lambda g: g.add_(torch.randn(g.shape)).div_(2)),  # another process's share
    ],
)
def test_what_is_no_factor_of_all_is_none(change):
    assert traced(change) == Trace(None, "several")


def test_gradients_that_are_gone_or_not_finite_tell_nothing():
    def forget(model):
        for parameter in model.parameters():
            parameter.grad = None

    assert traced(forget).factor is None
    assert traced(multiply(float("nan"))) == Trace(None, "lost")


def test_one_parameter_of_many_proves_nothing():
    def forget(model):
        for parameter in list(model.parameters())[1:]:
            parameter.grad = torch.zeros_like(parameter)
        next(model.parameters()).grad.mul_(0.5)

    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)))
    one = Tracer(model)
    one.arm()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    model[0].bias.grad.fill_(1.0)
    one.after_backward()
    one.take(torch.optim.SGD(model.parameters()))
    assert one.trace([]) == Trace(None, "few")


def test_of_a_model_with_one_parameter_that_one_tells():
    model = nn.Linear(8, 8, bias=False)
    one = Tracer(model)
    one.arm()
    model.weight.grad = torch.ones(8, 8)
    one.after_backward()
    model.weight.grad *= 0.5
    one.take(torch.optim.SGD(model.parameters()))
    assert one.trace([]) == Trace(0.5)


def test_one_parameter_of_every_group_is_followed():
    """The last of sixty biases is a group of its own, and it alone is clipped."""
    model = nn.ModuleList([nn.Linear(8, 8) for _ in range(60)])
    *others, last = model.parameters()
    optimizer = torch.optim.SGD([{"params": others}, {"params": [last]}], lr=0.1)
    one, found = Tracer(model), []
    assert all(last is not followed for followed in one._parameters)
    for _ in range(2):
        one.arm()
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        one.after_backward()
        last.grad *= 0.5
        one.take(optimizer)
        found.append(one.trace([]))
    assert found == [Trace(1.0), Trace(None, "several")]


def test_whoever_has_no_gradient_is_followed_no_more():
    """The trunk rests in every update; after one that told nothing, the head is followed."""
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(60)))
    optimizer = torch.optim.SGD(model.parameters())
    one, found = Tracer(model), []
    for _ in range(2):
        one.arm()
        for parameter in model[59].parameters():
            parameter.grad = torch.ones_like(parameter)
        one.after_backward()
        for parameter in model[59].parameters():
            parameter.grad *= 0.5
        one.take(optimizer)
        found.append(one.trace([]))
    assert found == [Trace(None, "few"), Trace(0.5)]


def test_the_scale_that_a_fused_optimizer_takes_out_itself():
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.grad_scale = torch.tensor(64.0)
    one = Tracer(model)
    one.arm()
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 64.0)
    one.after_backward()
    one.take(optimizer)
    calls = [BackwardCall(torch.tensor(1.0), LossScale(torch.tensor(64.0), 0))]
    assert one.trace(calls).factor == 1.0


# --- loops ---------------------------------------------------------------------------------------


class Loop:
    """A small model, and what its optimizer takes in each step."""

    def __init__(self, **options):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Linear(16, 8))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, **options)
        self.x = torch.randn(4, 8)
        self.left = self.taken = math.nan

    def norm(self, parameters=None):
        gradients = [one.grad for one in parameters or self.model.parameters()]
        return math.sqrt(sum(g.double().square().sum().item() for g in gradients if g is not None))

    def backward(self, share=1.0):
        (share * (self.model(self.x) - 1.0).square().mean()).backward()
        self.left = self.norm()

    def step(self):
        self.taken = self.norm()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def clip(self):
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)


def watched(passes, loop=None):
    """Rows of the run at step 1, the notes about gradients, and what the record says of them."""
    loop = loop or Loop()
    with watch(loop.model, loop.optimizer, None, every=1, quiet=True) as one:
        passes(loop)
        rows = {
            row.quantity: row.value
            for row in one.record.select()
            if row.quantity in ("train.gradient_norm", "train.clipping") and row.step == 1
        }
        notes = [note for note in one.notes if not note.startswith("The anatomy")]
        return loop, rows, notes, one.record.provenance["watch"]["gradients"]


def test_clipping_is_told_and_nothing_is_noted():
    def passes(loop):
        loop.backward()
        loop.clip()
        loop.step()

    loop, rows, notes, said = watched(passes)
    assert rows["train.gradient_norm"] == pytest.approx(loop.left, rel=1e-5)
    assert rows["train.clipping"] == pytest.approx(0.1 / loop.left, rel=1e-4)
    assert notes == []
    assert said == {"before clipping": 1, "as the optimizer takes them": 0}


def clipped_between(loop):
    loop.backward()
    loop.clip()
    loop.backward()
    loop.clip()
    loop.step()


def noise(loop):
    loop.backward()
    for one in loop.model.parameters():
        one.grad += 0.02 * one.grad.norm() * torch.randn_like(one) / one.numel() ** 0.5
    loop.step()


def first_group_clipped(loop):
    loop.backward()
    nn.utils.clip_grad_norm_(loop.model[0].parameters(), 0.01)
    loop.step()


def last_matrix_clipped(loop):
    loop.backward()
    nn.utils.clip_grad_norm_([loop.model[3].weight], 0.01)
    loop.step()


def averaged(loop):
    """What all_reduce and a division leave: the mean with gradients of other examples."""
    loop.backward()
    others = torch.autograd.grad(
        (loop.model(-loop.x) + 1.0).square().mean(), loop.model.parameters()
    )
    for one, other in zip(loop.model.parameters(), others, strict=True):
        one.grad.add_(other).div_(2)
    loop.step()


def by_functions(loop):
    gradients = torch.autograd.grad(loop.model(loop.x).square().mean(), loop.model.parameters())
    for one, gradient in zip(loop.model.parameters(), gradients, strict=True):
        one.grad = gradient
    loop.step()


@pytest.mark.parametrize(
    ("passes", "word"),
    [
        (clipped_between, "between two backward passes"),
        (noise, "more than one factor"),
        (first_group_clipped, "more than one factor"),
        (last_matrix_clipped, "more than one factor"),
        (averaged, "more than one factor"),
        (by_functions, "no call of backward()"),
    ],
)
def test_where_no_factor_is_proven_gradients_are_those_that_the_optimizer_takes(passes, word):
    loop, rows, notes, said = watched(passes)
    assert rows == {"train.gradient_norm": pytest.approx(loop.taken, rel=1e-5)}
    (note,) = notes
    assert word in note
    assert "as the optimizer takes them" in note
    assert said == {"before clipping": 0, "as the optimizer takes them": 1}


def test_gradients_that_were_zeroed_between_two_backward_passes_are_no_change():
    def passes(loop, set_to_none):
        loop.backward()
        loop.optimizer.zero_grad(set_to_none=set_to_none)
        loop.backward()
        loop.clip()
        loop.step()

    for set_to_none in (True, False):
        loop, rows, notes, _ = watched(lambda loop, kind=set_to_none: passes(loop, kind))
        assert rows["train.clipping"] == pytest.approx(0.1 / loop.left, rel=1e-4)
        assert notes == []


def test_accumulation_alone_is_no_change():
    def passes(loop):
        for _ in range(3):
            loop.backward(1 / 3)
        loop.step()

    loop, rows, notes, _ = watched(passes)
    assert rows == {
        "train.gradient_norm": pytest.approx(loop.left, rel=1e-5),
        "train.clipping": 1.0,
    }
    assert notes == []


def test_a_division_by_micro_batches_is_named_and_not_taken_for_clipping():
    def passes(loop):
        for _ in range(4):
            loop.backward()
        for one in loop.model.parameters():
            one.grad /= 4
        loop.step()

    loop, rows, notes, _ = watched(passes)
    assert rows["train.gradient_norm"] == pytest.approx(loop.left, rel=1e-5)
    assert rows["train.clipping"] == pytest.approx(0.25)
    assert ["1/4, over as many micro-batches" in note for note in notes] == [True]


def test_gradients_behind_hooks_of_parameters_are_said_to_be_that():
    def halve(parameter):
        parameter.grad.mul_(0.5)

    loop = Loop()
    loop.model[0].weight.register_hook(lambda g: g.clamp(-1e-3, 1e-3))
    loop.model[2].weight.register_post_accumulate_grad_hook(halve)

    def passes(loop):
        loop.backward()
        loop.step()

    _, rows, notes, _ = watched(passes, loop)
    assert rows["train.gradient_norm"] == pytest.approx(loop.left, rel=1e-5)
    assert ["2 parameters, such as '0.weight', have hooks" in note for note in notes] == [True]


def test_frozen_parameters_take_no_part():
    loop = Loop()

    def passes(loop):
        loop.model[0].requires_grad_(False)
        loop.model[2].requires_grad_(False)
        loop.backward()
        loop.clip()
        loop.step()

    _, rows, notes, _ = watched(passes, loop)
    assert rows["train.clipping"] == pytest.approx(0.1 / loop.left, rel=1e-4)
    assert notes == []
