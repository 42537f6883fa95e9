"""Steps inside of steps, and steps that only fill an optimizer's state, are no updates."""

import pytest
import torch
from torch import nn

from leadline.lab.watch.fence import Fence
from leadline.lab.watch.updates.counting import UpdateCounter
from leadline.lab.watch.updates.steps import inner_optimizers
from leadline.lab.watch.watch import watch
from tests.twin_runs import batches
from tests.watched import tiny_gpt2


class Holder(torch.optim.Optimizer):
    """Holds an optimizer of the same parameters, as SAM and Lookahead do."""

    def __init__(self, parameters, inner=torch.optim.SGD, **options):
        super().__init__(parameters, {"lr": 0.1})
        self.base_optimizer = inner(self.param_groups, **({"lr": 0.1} | options))
        self.param_groups = self.base_optimizer.param_groups

    def step(self, closure=None):
        return self.base_optimizer.step(closure)


class Twice(Holder):
    def step(self, closure=None):
        self.base_optimizer.step()
        self.base_optimizer.step()


class SAM(Holder):
    """Foret et al. 2021, as it is mostly written: https://github.com/davda54/sam."""

    rho = 0.05

    @torch.no_grad()
    def first_step(self, zero_grad=False):
        held = [one for group in self.param_groups for one in group["params"]]
        held = [one for one in held if one.grad is not None]
        norm = torch.stack([one.grad.norm() for one in held]).norm()
        for one in held:
            self.state[one]["old"] = one.data.clone()
            one.add_(one.grad * (self.rho / (norm + 1e-12)))
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def second_step(self, zero_grad=False):
        for one, state in self.state.items():
            one.data = state["old"]
        self.base_optimizer.step()
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def step(self, closure=None):
        closure = torch.enable_grad()(closure)
        self.first_step(zero_grad=True)
        closure()
        self.second_step()


def counted(model, optimizers):
    said = []
    counter = UpdateCounter(
        model,
        optimizers,
        before=lambda one: said.append(type(one).__name__),
        after=lambda: said.append("after"),
        waiting=lambda: said.append("waiting"),
        missed=lambda one: said.append("missed"),
        fence=Fence(quiet=True),
    )
    counter.begin()
    return counter, said


def trained(module=None):
    model = nn.Linear(2, 1) if module is None else module
    for one in model.parameters():
        one.grad = torch.ones_like(one)
    return model


@pytest.mark.parametrize("named", ["outer", "both", "none"])
@pytest.mark.parametrize("kind", [Holder, Twice])
def test_a_step_inside_of_a_step_is_the_same_update(kind, named):
    model = trained()
    optimizer = kind(model.parameters())
    given = {"outer": [optimizer], "both": [optimizer.base_optimizer, optimizer], "none": None}
    counter, said = counted(model, given[named])
    optimizer.step()
    optimizer.step()
    counter.end()
    assert said == ["SGD", "after"] * 2


def test_an_inner_optimizer_that_is_named_alone_counts_by_itself():
    model = trained()
    optimizer = Holder(model.parameters())
    counter, said = counted(model, [optimizer.base_optimizer])
    optimizer.step()
    counter.end()
    assert said == ["SGD", "after"]


@pytest.mark.parametrize("named", [True, False])
def test_an_inner_optimizer_that_is_stepped_in_its_holders_place_makes_the_update(named):
    model = trained()
    optimizer = SAM(model.parameters())
    counter, said = counted(model, [optimizer] if named else None)
    for _ in range(2):
        optimizer.first_step()
        optimizer.second_step()
    counter.end()
    assert said == ["SGD", "after"] * 2


def test_a_step_that_raises_is_not_under_way_any_more():
    class Failing(Holder):
        def step(self, closure=None):
            raise RuntimeError("out of memory")

    model = trained()
    optimizer = Failing(model.parameters())
    counter, said = counted(model, [optimizer])
    with pytest.raises(RuntimeError, match="memory"):
        optimizer.step()
    optimizer.base_optimizer.step()
    optimizer.base_optimizer.step()
    counter.end()
    assert said == ["SGD", "after"] * 2


def test_a_holder_that_does_not_step_what_it_holds_is_read_ahead_from_then_on():
    class Alone(Holder):
        def step(self, closure=None):
            for group in self.param_groups:
                for one in group["params"]:
                    one.data.sub_(one.grad)

    model = trained()
    optimizer = Alone(model.parameters())
    counter, said = counted(model, [optimizer])
    optimizer.step()
    optimizer.step()
    counter.end()
    assert said == ["missed", "after", "Alone", "after"]


def test_of_what_an_optimizer_holds_only_what_moves_the_same_parameters_is_its_own():
    model, other = nn.Linear(2, 1), nn.Linear(2, 1)
    optimizer = Holder(model.parameters())
    optimizer.parts = [Holder(model.parameters()), torch.optim.SGD(other.parameters(), lr=0.1)]
    optimizer.itself = optimizer
    (part, _) = optimizer.parts
    assert inner_optimizers(optimizer) == [optimizer.base_optimizer, part, part.base_optimizer]


def test_a_wrapper_whose_inner_optimizer_steps_a_part_is_read_as_a_whole():
    class Sharding(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {"lr": 0.1})
            self.optim = torch.optim.SGD(self.param_groups[0]["params"][:1], lr=0.1)

        def step(self, closure=None):
            self.optim.step()

    model = trained()
    optimizer = Sharding(model.parameters())
    counter, said = counted(model, [optimizer])
    optimizer.step()
    counter.end()
    assert said == ["Sharding", "after"]


# --- steps that fill the state -------------------------------------------------------------------


@pytest.mark.parametrize("named", [True, False])
def test_a_step_that_only_fills_the_state_is_no_update(named):
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    model = nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
    counter, said = counted(model, [optimizer] if named else None)
    assert get_optimizer_state_dict(model, optimizer)["state"]
    assert said == []
    trained(model)
    assert counter.steps_made(optimizer) == 0
    optimizer.step()  # a warm-up may begin at a rate of zero, too
    counter.end()
    assert said == ["AdamW", "after"]
    assert counter.steps_made(optimizer) == 2


def test_a_run_whose_state_was_filled_begins_at_its_first_update(tmp_path):
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    model = tiny_gpt2()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with watch(model, optimizer, tmp_path / "a", every=1, quiet=True) as one:
        get_optimizer_state_dict(model, optimizer)
        for batch in batches(2):
            model(**batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        assert one.step == 2
        assert [row.step for row in one.record.select("train.loss")] == [1, 2]
        assert one.notes == []


# --- SAM -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["closure", "two steps"])
@pytest.mark.parametrize("in_place", [False, True])
def test_an_update_of_sam_has_the_loss_of_its_first_pass(tmp_path, by, in_place):
    model = tiny_gpt2(dropout=0.0)
    optimizer = SAM(model.parameters(), torch.optim.AdamW, lr=1e-2)
    if in_place:
        optimizer.zero_grad = lambda: nn.Module.zero_grad(model, set_to_none=False)
    expected, moved = [], {}
    weight = model.transformer.wpe.weight
    with watch(model, optimizer, tmp_path / "a", every=2, quiet=True) as one:
        for step, batch in enumerate(batches(4), start=1):
            before = weight.detach().clone()

            def loss(batch=batch):
                value = model(**batch).loss
                value.backward()
                return float(value.detach())

            expected.append(loss())
            if by == "closure":
                optimizer.step(loss)
                optimizer.zero_grad()
            else:
                optimizer.first_step(zero_grad=True)
                assert loss() != expected[-1]
                optimizer.second_step(zero_grad=True)
            moved[step] = float((weight.detach() - before).norm() / before.norm())
        assert one.notes == []
        assert [row.value for row in one.record.select("train.loss")] == pytest.approx(expected)
        rows = list(one.record.select("weights.update_ratio"))
    # From the weights that the update begins with, not from those that SAM has taken back.
    read = {row.step: row.value for row in rows if row.site.point == "transformer.wpe.weight"}
    assert read == {step: pytest.approx(moved[step], rel=1e-2) for step in (1, 2, 4)}


def test_lbfgs_has_the_loss_at_the_weights_it_begins_with(tmp_path):
    model = tiny_gpt2(dropout=0.0)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1e-2, max_iter=3)
    expected, called = [], []
    with watch(model, optimizer, tmp_path / "a", every=2, quiet=True) as one:
        for batch in batches(4):

            def loss(batch=batch):
                optimizer.zero_grad()
                value = model(**batch).loss
                value.backward()
                called.append(value)
                return value

            expected.append(float(optimizer.step(loss).detach()))
        assert [row.value for row in one.record.select("train.loss")] == pytest.approx(expected)
    assert len(called) == 12
