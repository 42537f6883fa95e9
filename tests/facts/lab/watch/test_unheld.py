"""Parameters that no optimizer holds: rows of zeros where they stay, and words for what is there."""

import copy

import pytest
import torch
from torch import nn

from leadline.lab.watch.watch import watch


def model_of(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 4)).to(dtype)


def run(model, optimizers, *, given=..., updates=4, each=lambda step: None):
    """Train; return the update ratios by parameter and step, the notes, and G14's warnings."""
    handed = optimizers if given is ... else given
    dtype = next(model.parameters()).dtype
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(1)).to(dtype)
    with watch(model, handed, None, every=1, quiet=True) as one:
        for step in range(1, updates + 1):
            model(x).square().sum().backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            each(step)
        ratios, gradients = {}, set()
        for row in one.record.select():
            if row.quantity == "weights.update_ratio":
                place = row.site.point if row.site.layer == 0 else f"block {row.site.layer}"
                ratios.setdefault(place, {})[row.step] = row.value
            if row.quantity in ("gradient.parameters", "train.gradient_norm"):
                gradients.add(row.site.point or "run")
        notes = [note for note in one.notes if not note.startswith("The anatomy")]
        return ratios, notes, [w for w in one.warnings if "move" in w.verdict], gradients


def sgd(*modules, rate=0.01):
    return torch.optim.SGD([one for part in modules for one in part.parameters()], lr=rate)


NAMES = {f"{at}.{kind}" for at in range(3) for kind in ("weight", "bias")}


def test_all_that_is_held_is_not_spoken_of():
    model = model_of()
    ratios, notes, warnings, _ = run(model, [sgd(model)])
    assert ratios.keys() == NAMES
    assert all(value > 0 for each in ratios.values() for value in each.values())
    assert notes == warnings == []


def test_what_no_optimizer_holds_stays_as_it_is_and_is_named():
    model = model_of()
    ratios, notes, _, _ = run(model, [sgd(model[0], model[2])])
    assert ratios["1.weight"] == ratios["1.bias"] == dict.fromkeys(range(1, 5), 0.0)
    assert all(ratios["0.weight"][step] > 0 for step in range(1, 5))
    (note,) = notes
    assert note.startswith(
        "2 parameters that require a gradient, such as '1.bias', are in no optimizer that stepped so far"
    )
    assert "and do not move: nothing trains them." in note


def test_frozen_parameters_are_none_of_them():
    model = model_of()
    model[1].requires_grad_(False)
    ratios, notes, warnings, _ = run(model, [sgd(model[0], model[2])])
    assert not {"1.weight", "1.bias"} & ratios.keys()
    assert notes == warnings == []


def test_blocks_that_are_in_no_optimizer_are_warned_of_and_frozen_ones_are_not():
    """G14 by way of the watch: the second of three blocks is left out, or frozen."""
    for frozen in (False, True):
        model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4)) for _ in range(3)))
        model = nn.ModuleDict({"h": model})
        model.forward = model["h"].forward
        model["h"][1].requires_grad_(not frozen)
        ratios, notes, warnings, _ = run(model, [sgd(model["h"][0], model["h"][2])])
        assert len(notes) == (not frozen)
        assert ("block 2" in ratios) is not frozen
        assert [one.layers for one in warnings] == ([] if frozen else [(2,)])


def test_an_optimizer_of_another_model_trains_nothing():
    model = model_of()
    other = model_of()
    ratios, notes, warnings, gradients = run(model, [sgd(other)])
    assert ratios.keys() == NAMES
    # It holds tensors that are no parameters of the model: the first sample cannot tell.
    assert set(ratios["0.weight"].items()) == {(2, 0.0), (3, 0.0), (4, 0.0)}
    assert gradients == set()  # of nothing there is no norm
    assert ["holds none of the model's parameters" in note for note in notes] == [True]
    assert "No weight of the model moves" in warnings[0].verdict


def test_an_optimizer_that_steps_rarely_is_waited_for():
    model = model_of()
    often, rarely = sgd(model[0], model[2]), sgd(model[1])
    steps = []

    def each(step):
        if step in (1, 3):
            steps.append(step)
            rarely.step()

    ratios, notes, _, _ = run(model, [often], given=None, each=each)
    assert steps == [1, 3]
    assert all(value > 0 for value in ratios["1.weight"].values())
    assert notes == []


def test_weights_that_something_else_moves_are_not_said_to_stand_still():
    model = model_of()

    def each(step):
        with torch.no_grad():
            for one in model[1].parameters():
                one.add_(0.01)

    ratios, notes, warnings, _ = run(model, [sgd(model[0], model[2])], given=None, each=each)
    assert "1.weight" not in ratios
    assert ["and move all the same" in note for note in notes] == [True]
    assert warnings == []


class Copies(torch.optim.SGD):
    """An optimizer of copies in float32, which a wrapper writes back after each step."""

    def __init__(self, model):
        self.model = list(model.parameters())
        super().__init__([nn.Parameter(one.detach().float()) for one in self.model], lr=0.01)

    def back(self):
        with torch.no_grad():
            for one, other in zip(self.model, self.param_groups[0]["params"], strict=True):
                other.grad = None
                one.copy_(other)


@pytest.mark.parametrize("written_back", [True, False])
def test_copies_in_float32_are_told_and_stale_ones_too(written_back):
    model = model_of(torch.bfloat16)
    optimizer = Copies(model)

    def each(step):
        for one in optimizer.param_groups[0]["params"]:
            one.data.add_(0.1)
        if written_back:
            optimizer.back()

    ratios, notes, warnings, gradients = run(model, [optimizer], each=each)
    assert gradients == set()
    assert "holds copies in float32, and not what the model has: 6 parameters" in notes[0]
    if written_back:
        assert len(notes) == 1
        assert not ratios
        assert not warnings
    else:
        assert "holds none of the model's parameters" in notes[1]
        assert set(ratios["0.weight"].values()) == {0.0}
        assert "No weight of the model moves" in warnings[0].verdict


def test_half_of_a_group_that_no_optimizer_holds_counts_as_weights_that_stay():
    """RMS(dW) / RMS(W) over all trained weights of a block, whoever holds them."""
    model = nn.ModuleDict({"h": nn.Sequential(*(nn.Sequential(nn.Linear(4, 4)) for _ in range(2)))})
    model.forward = model["h"].forward
    held = [model["h"][0][0].weight, *model["h"][1].parameters()]
    before = copy.deepcopy(model)
    ratios, _, _, _ = run(model, [torch.optim.SGD(held, lr=0.1)], updates=1)
    first, old = model["h"][0][0], before["h"][0][0]
    change = (first.weight - old.weight).norm()
    size = (old.weight.square().sum() + old.bias.square().sum()).sqrt()
    assert ratios["block 1"][1] == pytest.approx((change / size).item(), rel=1e-5)


# --- parameters that are exchanged ---------------------------------------------------------------


@pytest.mark.parametrize("told", [True, False])
def test_exchanged_parameters_are_read_from_then_on(told):
    """After update 2 the middle layer gets new weights; the optimizer is told of them, or not."""
    model = model_of()
    optimizer = sgd(model)
    changes = {}

    def each(step):
        if step == 2:
            model[1].weight = nn.Parameter(model[1].weight.detach() * 3.0)
            if told:
                optimizer.param_groups[0]["params"][2] = model[1].weight
        changes[step + 1] = model[1].weight.detach().clone()

    ratios, notes, _, _ = run(model, [optimizer], each=each)
    assert "The parameter '1.weight' of the model was exchanged" in notes[0]
    assert ratios["0.weight"].keys() == {1, 2, 3, 4}
    if told:
        assert len(notes) == 1
        expected = ((changes[4] - changes[3]).norm() / changes[3].norm()).item()
        assert ratios["1.weight"][3] == pytest.approx(expected, rel=1e-5)
    else:
        assert ratios["1.weight"] == {1: ratios["1.weight"][1], 2: ratios["1.weight"][2], 4: 0.0}
        assert "'1.weight' requires a gradient, is in no optimizer that stepped" in notes[1]


def test_layers_that_come_and_go_do_not_end_the_reading():
    model = model_of()
    optimizer = sgd(model)

    def each(step):
        if step == 2:
            model.append(nn.Linear(4, 4))
            optimizer.add_param_group({"params": list(model[3].parameters())})
        if step == 3:
            model[1].bias = None

    ratios, notes, _, _ = run(model, [optimizer], each=each)
    assert ratios["3.weight"].keys() == {3, 4}
    assert ratios["1.bias"].keys() == {1, 2, 3}
    assert ratios["2.weight"].keys() == {1, 2, 3, 4}
    assert ["were exchanged" in note for note in notes] == [True]


# --- optimizers that are not read to the end -----------------------------------------------------


def test_an_optimizer_without_a_rate_leaves_all_other_rows():
    from transformers.optimization import Adafactor

    model = model_of()
    optimizer = Adafactor(model.parameters(), lr=None, relative_step=True, warmup_init=True)
    ratios, notes, _, gradients = run(model, [optimizer], updates=3)
    assert ratios.keys() == NAMES
    assert gradients == NAMES | {"run"}
    assert [note.split(" (")[0] for note in notes] == [
        "The optimizer names no learning rate in its groups, as Adafactor does that sets its own, so "
        "train.rate is not read.",
        "The second moment of the gradient of 3 parameters, such as '0.weight', cannot be read",
    ]


def test_a_table_with_sparse_gradients_leaves_all_other_rows():
    model = nn.Sequential(nn.Embedding(9, 4, sparse=True), nn.Linear(4, 4))
    sparse = torch.optim.SparseAdam(model[0].parameters())
    adam = torch.optim.AdamW([{"params": []}, {"params": list(model[1].parameters())}])
    with watch(model, [sparse, adam], None, every=1, quiet=True) as one:
        for _ in range(3):
            model(torch.tensor([1, 2, 2])).square().sum().backward()
            for optimizer in (sparse, adam):
                optimizer.step()
                optimizer.zero_grad()
        rows = {(row.quantity, row.site.point, row.step) for row in one.record.select()}
        notes = [note for note in one.notes if not note.startswith("The anatomy")]
    for step in (1, 2, 3):
        for name in ("0.weight", "1.weight", "1.bias"):
            assert {
                ("gradient.parameters", name, step),
                ("weights.update_ratio", name, step),
            } <= rows
    assert ("optimizer.surprise", "1.weight", 3) in rows
    assert ("optimizer.surprise", "0.weight", 3) not in rows
    (note,) = notes
    assert "'0.weight' cannot be read (its gradient is sparse)" in note
