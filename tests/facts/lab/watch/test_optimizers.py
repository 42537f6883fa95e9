"""What is read of an optimizer's state, by another route; and what cannot be read stands alone."""

import math

import pytest
import torch
from torch import nn

from leadline.lab.watch.updates.counting import steps_made
from leadline.lab.watch.weights.optimizers import StepReading, rate_of, readings_of
from leadline.lab.watch.weights.parameter_groups import ParameterGroups
from leadline.lab.watch.weights.picked import MOST_NUMBERS, picked

SHAPES = ((6, 5), (5,), (4, 5))
BETA = 0.9


def plain(shapes=SHAPES, *, dtype=torch.float32):
    """Parameters with numbers as names."""
    generator = torch.Generator().manual_seed(0)
    return nn.ParameterDict(
        {
            str(at): nn.Parameter(torch.randn(shape, generator=generator, dtype=dtype))
            for at, shape in enumerate(shapes)
        }
    )


def train(module, optimizer, steps=4, *, read=True):
    """Steps with random gradients; the gradients, and what was read of the last step by name."""
    generator = torch.Generator().manual_seed(1)
    history, found, reading = [], {}, None
    for step in range(1, steps + 1):
        for one in module.values():
            one.grad = torch.randn(one.shape, generator=generator, dtype=one.dtype)
        history.append({name: one.grad.clone() for name, one in module.items()})
        last = read and step == steps
        if last:
            reading = StepReading(ParameterGroups(module, None))
            reading.begin(optimizer)
        before = {name: one.detach().clone() for name, one in module.items()}
        optimizer.step()
        if last:
            found = {one.site.point: one for one in readings_of(reading.end())}
            for name, one in module.items():
                change = (one.detach() - before[name]).norm() / before[name].norm()
                if name in found and found[name].update_ratio is not None:
                    assert found[name].update_ratio == pytest.approx(change.item(), rel=1e-5)
    return history, found, reading


def real(tensor):
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def moment(history, name, beta, *, corrected):
    """The exponential mean of the squares of all gradients but the last, in double precision."""
    v, before = 0.0, history[:-1]
    for gradients in before:
        v = beta * v + (1 - beta) * real(gradients[name]).double().square()
    return v / (1 - beta ** len(before)) if corrected else v


def surprises(history, v):
    """RMS(g / sqrt(v)) of every parameter; `v(name)` is the second moment."""
    return {
        name: (real(gradient).double().square() / v(name)).mean().sqrt().item()
        for name, gradient in history[-1].items()
    }


ADAMS = {
    "for-loop": lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.8, BETA), foreach=False),
    "foreach": lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.8, BETA), foreach=True),
    "fused": lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.8, BETA), fused=True),
    "tensors": lambda p: torch.optim.Adam(
        p, lr=torch.tensor(0.01), betas=(0.8, BETA), capturable=False, foreach=False
    ),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.01, betas=(0.8, BETA)),
    "RAdam": lambda p: torch.optim.RAdam(p, lr=0.01, betas=(0.8, BETA)),
}


@pytest.mark.parametrize("make", ADAMS.values(), ids=ADAMS)
def test_the_second_moment_of_adam_is_that_of_its_gradients(make):
    module = plain()
    history, found, reading = train(module, make(module.parameters()))
    expected = surprises(history, lambda name: moment(history, name, BETA, corrected=True))
    assert {name: one.surprise for name, one in found.items()} == pytest.approx(expected, rel=1e-5)
    assert not reading.unread


def test_amsgrad_divides_by_the_largest_second_moment_so_far():
    module = plain()
    optimizer = torch.optim.Adam(module.parameters(), betas=(0.8, BETA), amsgrad=True)
    history, found, _ = train(module, optimizer, steps=6)

    def largest(name):
        v = top = torch.zeros(())
        for gradients in history[:-1]:
            v = BETA * v + (1 - BETA) * gradients[name].double().square()
            top = torch.maximum(top.double(), v)
        return top / (1 - BETA ** (len(history) - 1))

    expected = surprises(history, largest)
    assert {name: one.surprise for name, one in found.items()} == pytest.approx(expected, rel=1e-5)
    other = surprises(history, lambda name: moment(history, name, BETA, corrected=True))
    assert other != pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("make", "beta"),
    [
        (lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.7), 0.7),
        (lambda p: torch.optim.Adadelta(p, rho=0.6), 0.6),
    ],
)
def test_what_is_not_corrected_by_the_optimizer_is_not_corrected_here(make, beta):
    module = plain()
    history, found, _ = train(module, make(module.parameters()))
    expected = surprises(history, lambda name: moment(history, name, beta, corrected=False))
    assert {name: one.surprise for name, one in found.items()} == pytest.approx(expected, rel=1e-5)


class Lion(torch.optim.Optimizer):
    """Signs of a momentum, and nothing else."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.01, "betas": (0.9, 0.99)})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for one in group["params"]:
                kept = self.state[one].setdefault("exp_avg", torch.zeros_like(one))
                kept.lerp_(one.grad, 0.1)
                one.sub_(group["lr"] * kept.sign())


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
        lambda p: torch.optim.Adagrad(p, lr=0.01),  # a sum, and no mean
        lambda p: torch.optim.Adamax(p, lr=0.01),
        lambda p: torch.optim.ASGD(p, lr=0.01),
        Lion,
    ],
)
def test_optimizers_without_a_mean_of_squares_have_no_surprise(make):
    module = plain()
    history, found, reading = train(module, make(module.parameters()))
    assert [one.surprise for one in found.values()] == [None] * len(SHAPES)
    for name, one in found.items():
        assert one.gradient == pytest.approx(history[-1][name].norm().item(), rel=1e-6)
        assert one.update_ratio > 0
    assert not reading.unread


def adafactor_of_transformers(parameters):
    from transformers.optimization import Adafactor

    return Adafactor(parameters, lr=None, relative_step=True, warmup_init=True)


@pytest.mark.parametrize("make", [torch.optim.Adafactor, adafactor_of_transformers])
def test_the_rows_and_columns_of_adafactor_are_refused_by_name(make):
    module = plain()
    history, found, reading = train(module, make(module.parameters()))
    assert {(one.kind, one.name) for one in reading.unread} == {
        ("surprise", "0"),
        ("surprise", "2"),
    }
    assert {one.why for one in reading.unread} == {"Adafactor keeps it by rows and columns"}
    assert found["0"].surprise is None
    assert len(found) == len(history[-1]) == 3
    assert all(one.update_ratio > 0 for one in found.values())


def test_vectors_under_adafactor_of_transformers_have_a_surprise():
    module = plain(((7,),))
    history, found, _ = train(module, adafactor_of_transformers(module.parameters()))
    v = 0.0
    for step, gradients in enumerate(history[:-1], start=1):
        beta = 1.0 - step**-0.8
        v = beta * v + (1 - beta) * gradients["0"].double().square()
    expected = surprises(history, lambda _: v)
    assert found["0"].surprise == pytest.approx(expected["0"], rel=1e-4)


def test_a_rate_that_an_optimizer_sets_itself_is_none():
    module = plain()
    assert math.isnan(rate_of(adafactor_of_transformers(module.parameters())))
    optimizer = torch.optim.SGD([{"params": []}, {"params": [module["0"]], "lr": 0.5}], lr=0.1)
    assert rate_of(optimizer) == 0.5
    del optimizer.param_groups[1]["lr"]
    assert math.isnan(rate_of(optimizer))
    assert rate_of(torch.optim.SGD(module.parameters(), lr=torch.tensor(0.25))) == 0.25


# --- groups of several tensors -------------------------------------------------------------------


def in_one_group(shapes):
    """A model whose first block has these parameters."""
    row = nn.ModuleList([plain(shapes), plain(((3,),))])
    return nn.ModuleDict({"h": row}), row[0]


def test_every_number_of_a_group_weighs_the_same_whatever_the_size_of_its_tensor():
    """A large tensor with g^2 / v of 4 throughout, a small one with 1/4: of those numbers the mean."""
    large, small = 100_000, 1000
    model, block = in_one_group(((large,), (small,)))
    optimizer = torch.optim.RMSprop(block.parameters())
    for parameter, ratio in zip(block.values(), (4.0, 0.25), strict=True):
        parameter.grad = torch.full_like(parameter, ratio**0.5)
        optimizer.state[parameter] = {"square_avg": torch.ones_like(parameter)}
    reading = StepReading(ParameterGroups(model, None))
    reading.begin(optimizer)
    (found,) = readings_of(reading.end())
    expected = math.sqrt((large * 4.0 + small * 0.25) / (large + small))
    assert found.surprise == pytest.approx(expected, rel=1e-6)
    assert large / MOST_NUMBERS > 20


def test_a_group_of_which_a_part_has_no_second_moment_has_no_surprise():
    """Muon steps matrices and has none; vectors of the same block are stepped by Adam."""
    model, block = in_one_group(((4, 4), (4,)))
    adam, sgd = torch.optim.Adam([block["1"]]), torch.optim.SGD([block["0"]], momentum=0.9)
    for _ in range(3):
        reading = StepReading(ParameterGroups(model, None))
        for one, parameter in ((adam, block["1"]), (sgd, block["0"])):
            parameter.grad = torch.ones_like(parameter)
            reading.begin(one)
            one.step()
        (found,) = readings_of(reading.end())
    assert found.surprise is None
    assert found.gradient == pytest.approx(math.sqrt(20))


def test_what_was_never_stepped_is_left_out_of_the_surprise_of_its_group():
    """An expert that rested until now."""
    model, block = in_one_group(((4, 4), (4,)))
    adam = torch.optim.Adam(block.parameters(), betas=(0.8, BETA))
    block["0"].grad = torch.full((4, 4), 2.0)
    adam.step()
    block["0"].grad = torch.full((4, 4), 6.0)
    block["1"].grad = torch.ones(4)
    reading = StepReading(ParameterGroups(model, None))
    reading.begin(adam)
    (found,) = readings_of(reading.end())
    assert found.surprise == pytest.approx(3.0)


class Decaying(torch.optim.SGD):
    """Lets every weight decay, whether or not it has a gradient."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for one in group["params"]:
                one.mul_(0.99)
        return super().step(closure)


@pytest.mark.parametrize("kind", [torch.optim.SGD, Decaying])
def test_experts_without_a_gradient_belong_to_the_weights_of_their_group(kind):
    model, block = in_one_group(((4, 4), (4, 4), (4, 4)))
    before = torch.cat([one.detach().flatten().clone() for one in block.values()])
    optimizer = kind(model.parameters(), lr=0.1)
    block["0"].grad = torch.ones(4, 4)
    reading = StepReading(ParameterGroups(model, None))
    reading.begin(optimizer)
    optimizer.step()
    found = {one.site.layer: one for one in readings_of(reading.end())}
    after = torch.cat([one.detach().flatten() for one in block.values()])
    expected = ((after - before).norm() / before.norm()).item()
    assert found[1].update_ratio == pytest.approx(expected, rel=1e-6)
    assert found[1].gradient == pytest.approx(4.0)
    # The other block got no gradient at all: only what moves there speaks for it.
    assert found[2].update_ratio == (None if kind is torch.optim.SGD else pytest.approx(0.01))
    assert found[2].gradient == 0.0


def test_of_parameters_that_two_optimizers_step_the_gradient_counts_once():
    module = plain()
    before = {name: one.detach().clone() for name, one in module.items()}
    both = [torch.optim.SGD(module.parameters(), lr=0.1), torch.optim.AdamW(module.parameters())]
    reading = StepReading(ParameterGroups(module, None))
    for one in module.values():
        one.grad = torch.ones_like(one)
    for each in both:
        reading.begin(each)
        each.step()
    squares = reading.gradient_squares()
    found = {one.site.point: one for one in readings_of(reading.end())}
    for name, one in module.items():
        assert found[name].gradient == pytest.approx(one.numel() ** 0.5)
        change = (one.detach() - before[name]).norm() / before[name].norm()
        assert found[name].update_ratio == pytest.approx(change.item(), rel=1e-5)
    assert sum(squares.values()) == pytest.approx(sum(one.numel() for one in module.values()))


# --- numbers of other kinds ----------------------------------------------------------------------


def test_complex_parameters_are_read_as_pairs():
    module = plain(((6, 5), (3000,)), dtype=torch.complex64)
    history, found, reading = train(module, ADAMS["for-loop"](module.parameters()))
    assert not reading.unread
    expected = surprises(history, lambda name: moment(history, name, BETA, corrected=True))
    assert {name: one.surprise for name, one in found.items()} == pytest.approx(expected, rel=1e-5)
    assert found["1"].gradient == pytest.approx(history[-1]["1"].abs().norm().item(), rel=1e-5)


def test_small_updates_in_double_precision_are_not_rounded_away():
    module = plain(((50,),), dtype=torch.float64)
    before = module["0"].detach().clone()
    _, found, _ = train(module, torch.optim.SGD(module.parameters(), lr=1e-10), steps=1)
    expected = ((module["0"].detach() - before).norm() / before.norm()).item()
    assert 0 < expected < 1e-8
    assert found["0"].update_ratio == pytest.approx(expected, rel=1e-6)


def test_what_is_picked_is_a_copy():
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.complex64):
        tensor = torch.ones(3, dtype=dtype)
        kept = picked(tensor)
        tensor.zero_()
        assert bool((kept != 0).any())


@pytest.mark.parametrize("make", [torch.optim.SparseAdam, lambda p: torch.optim.SGD(p, lr=0.1)])
def test_sparse_gradients_have_norms(make):
    """Row 2 comes twice: its gradients are added before they are squared."""
    model = nn.ModuleDict({"table": nn.Embedding(9, 4, sparse=True)})
    optimizer = make(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        model["table"](torch.tensor([2, 2, 5])).sum().backward()
        before = model["table"].weight.detach().clone()
        reading = StepReading(ParameterGroups(model, None))
        reading.begin(optimizer)
        optimizer.step()
        (found,) = readings_of(reading.end())
        change = (model["table"].weight.detach() - before).norm() / before.norm()
        assert found.update_ratio == pytest.approx(change.item(), rel=1e-5)
        assert found.gradient == pytest.approx(math.sqrt(4 * (2**2 + 1**2)))
        assert found.surprise is None
    reasons = [one.why for one in reading.unread]
    assert reasons == (["its gradient is sparse"] if make is torch.optim.SparseAdam else [])


def test_gradients_of_many_kinds_stand_beside_each_other():
    module = nn.ParameterDict(
        {
            "f32": nn.Parameter(torch.ones(4)),
            "f64": nn.Parameter(torch.ones(4, dtype=torch.float64)),
            "bf16": nn.Parameter(torch.ones(4, dtype=torch.bfloat16)),
            "c64": nn.Parameter(torch.ones(4, dtype=torch.complex64)),
            "nothing": nn.Parameter(torch.ones(0, 3)),
        }
    )
    for one in module.values():
        one.grad = torch.full_like(one, 3.0)
    reading = StepReading(ParameterGroups(module, None))
    reading.begin(torch.optim.SGD(module.parameters()))
    found = {one.site.point: one.gradient for one in readings_of(reading.end())}
    expected = dict.fromkeys(("f32", "f64", "bf16", "c64"), 6.0) | {"nothing": 0.0}
    assert found == pytest.approx(expected)
    assert not reading.unread


# --- what cannot be read -------------------------------------------------------------------------


class Odd(torch.Tensor):
    """A tensor that can do nothing but be there, such as one whose numbers are codes."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in (torch.Tensor.reshape, torch.Tensor.detach):
            raise NotImplementedError("codes")
        return super().__torch_function__(func, types, args, kwargs or {})


ODD = {
    "nothing": (lambda state, one: None, None),
    "an object": (lambda state, one: object(), None),
    "a list": (lambda state, one: [1, 2], None),
    "a number for every row": (
        lambda state, one: state | {"step": torch.ones(6)},
        "counts the updates in a form of its own",
    ),
    "no tensor": (lambda state, one: state | {"exp_avg_sq": None}, None),
    "codes": (
        lambda state, one: state | {"exp_avg_sq": torch.ones(6, 5, dtype=torch.uint8)},
        "in a form of its own",
    ),
    "another shape": (
        lambda state, one: state | {"exp_avg_sq": torch.ones(3)},
        "in a form of its own",
    ),
    "bitsandbytes": (
        lambda state, one: {"step": 3, "state1": torch.ones(30), "state2": torch.ones(30)},
        "in a form of its own",
    ),
    "a tensor of its own kind": (
        lambda state, one: state | {"exp_avg_sq": torch.ones(6, 5).as_subclass(Odd)},
        "NotImplementedError: codes",
    ),
    "on no device": (
        lambda state, one: state | {"exp_avg_sq": torch.ones(6, 5, device="meta")},
        "on the device 'meta'",
    ),
}


@pytest.mark.parametrize(("change", "why"), ODD.values(), ids=ODD)
def test_a_state_that_cannot_be_read_takes_nothing_with_it(change, why):
    module = plain()
    optimizer = ADAMS["for-loop"](module.parameters())
    history, _, _ = train(module, optimizer, read=False)
    first = module["0"]
    optimizer.state[first] = change(dict(optimizer.state[first]), first)
    reading = StepReading(ParameterGroups(module, None))
    reading.begin(optimizer)
    found = {one.site.point: one for one in readings_of(reading.end())}
    assert found["0"].surprise is None
    assert [why in one.why and one.name == "0" for one in reading.unread] == [True] * bool(why)
    for name, one in found.items():
        assert one.gradient == pytest.approx(history[-1][name].norm().item(), rel=1e-6)
        assert one.update_ratio == 0.0
    assert found["1"].surprise > 0
    assert found["2"].surprise > 0
    assert steps_made(optimizer) == 4


def test_numbers_of_updates_may_be_of_any_kind():
    module = plain()
    optimizer = ADAMS["for-loop"](module.parameters())
    history, _, _ = train(module, optimizer, read=False)
    kinds = (4, 4.0, torch.full((1, 1), 4.0))
    for one, kind in zip(module.values(), kinds, strict=True):
        optimizer.state[one]["step"] = kind
    reading = StepReading(ParameterGroups(module, None))
    reading.begin(optimizer)
    found = {one.site.point: one.surprise for one in readings_of(reading.end())}
    history.append(history[-1])
    expected = surprises(history, lambda name: moment(history, name, BETA, corrected=True))
    assert found == pytest.approx(expected, rel=1e-5)
    assert steps_made(optimizer) == 4


def test_optimizers_with_states_of_another_kind_have_made_no_updates():
    optimizer = torch.optim.SGD(plain().parameters())
    optimizer.state = [1, 2]
    assert steps_made(optimizer) == 0
    optimizer.state = {"a": None, "b": {"step": None}, "c": {"step": torch.ones(3)}}
    assert steps_made(optimizer) == 0


def test_parameters_without_numbers_are_named():
    module = plain()
    module["none"] = nn.Parameter(torch.ones(2, device="meta"))
    for one in module.values():
        one.grad = torch.ones_like(one)
    reading = StepReading(ParameterGroups(module, None))
    reading.begin(torch.optim.SGD(module.parameters()))
    found = {one.site.point for one in readings_of(reading.end())}
    assert found == {"0", "1", "2"}
    assert {(one.kind, one.name) for one in reading.unread} == {
        ("gradient", "none"), ("weight", "none"),
    }  # fmt: skip


def test_a_parameter_that_the_step_exchanges_is_named():
    module = plain()
    for one in module.values():
        one.grad = torch.ones_like(one)
    reading = StepReading(ParameterGroups(module, None))
    reading.begin(torch.optim.SGD(module.parameters()))
    module["1"].grad = None
    module["1"].data = torch.ones(9)
    found = {one.site.point: one for one in readings_of(reading.end())}
    assert found["1"].update_ratio is None
    assert found["0"].update_ratio == found["2"].update_ratio == 0.0
    assert [(one.kind, one.name) for one in reading.unread] == [("weight", "1")]
    assert found["1"].gradient > 0


@pytest.mark.parametrize(
    ("betas", "settings", "corrected"),
    [
        ((0.8, BETA), {"bias_correction": False}, False),
        ((0.8, BETA), {"correct_bias": False}, False),
        ((0.8, BETA), {"step": 4}, True),
        ((0.8, BETA), {"d0": 1e-6}, None),
        ((0.8, 0.9, 0.9), {}, None),
    ],
)
def test_kin_of_adam_say_in_their_groups_whether_they_correct(betas, settings, corrected):
    module = plain()
    optimizer = ADAMS["for-loop"](module.parameters())
    history, _, _ = train(module, optimizer, read=False)
    history.append(history[-1])
    optimizer.param_groups[0] |= {"betas": betas, **settings}
    if "step" in settings:
        for state in optimizer.state.values():
            del state["step"]
    reading = StepReading(ParameterGroups(module, None))
    reading.begin(optimizer)
    found = {one.site.point: one.surprise for one in readings_of(reading.end())}
    if corrected is None:
        assert set(found.values()) == {None}
    else:
        v = {name: moment(history, name, BETA, corrected=corrected) for name in found}
        assert found == pytest.approx(surprises(history, v.get), rel=1e-5)


# --- trained parameters that get no gradient -----------------------------------------------------


def gradients_of(module):
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    reading = StepReading(ParameterGroups(module, None))
    reading.begin(optimizer)
    optimizer.step()
    return {one.site.point: one.gradient for one in readings_of(reading.end())}


def test_a_trained_parameter_without_a_gradient_has_one_of_zero():
    module = plain()
    module["0"].grad = torch.ones(6, 5)
    module["2"].requires_grad_(False)  # frozen: it has none to read
    assert gradients_of(module) == {"0": pytest.approx(30**0.5), "1": 0.0}


def test_of_a_write_with_some_gradients_the_others_add_nothing():
    class Write(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])

    module = Write()
    module.layers[1].weight.grad = torch.ones(3, 3)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    reading = StepReading(ParameterGroups(module, None))
    reading.begin(optimizer)
    read = {one.site.layer: one.gradient for one in readings_of(reading.end())}
    assert read == {1: 0.0, 2: pytest.approx(3.0)}
