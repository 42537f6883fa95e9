"""What blocks keep for later ones is seen wherever it is kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import leadline
from leadline.anatomy import declare, untouched
from leadline.anatomy.stretch.past import Leaves, graphs_only
from leadline.anatomy.stretch.stretch import Stretches
from leadline.errors import ProbeError
from leadline.numerics.linear.linear_maps import dense
from leadline.numerics.linear.linearised import Linearised

WIDTH = 6
DECLARED = declare(blocks="layers", writes=["mixer", "mlp"])


class Store:
    """An object that all blocks share."""

    def __init__(self):
        self.kept: Any = None
        self.several = {}


GLOBAL = Store()


class Mixer(nn.Module):
    """Later layers add the values of the first one; `way` says where they are kept."""

    def __init__(self, way, store, first):
        super().__init__()
        self.values = nn.Linear(WIDTH, WIDTH)
        self.way, self.store, self.first = way, [store], first
        self.table = torch.ones(WIDTH)

    def forward(self, x):
        values = torch.tanh(self.values(x.cumsum(1))) * self.table
        store = GLOBAL if self.way == "global" else self.store[0]
        if self.way in ("shared", "global", "detached"):
            if self.first:
                store.kept = values.detach() if self.way == "detached" else values
            else:
                values = values + store.kept
        elif self.way == "dictionary":
            values = store.several.setdefault("first", values) + values
        elif self.way == "own":  # only looked at by whoever wants to know
            self.last = values
        elif self.way == "in place":
            x += 1.0
        return values


class Block(nn.Module):
    def __init__(self, way, store, first):
        super().__init__()
        self.mixer = Mixer(way, store, first)
        self.mlp = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.mixer(x)
        return x + self.mlp(x)


class Model(nn.Module):
    def __init__(self, way="plain"):
        super().__init__()
        torch.manual_seed(0)
        self.store = Store()
        self.layers = nn.ModuleList(Block(way, self.store, i == 0) for i in range(3))

    def forward(self, x):
        self.store.several.clear()
        x = x * 1.0
        for layer in self.layers:
            x = layer(x)
        return x


def inputs():
    return torch.randn(2, 4, WIDTH, generator=torch.Generator().manual_seed(1)).double()


def stretches(way):
    model, x = Model(way).double(), inputs()
    stack = leadline.anatomy_of(Model().double(), x, anatomy=DECLARED).stacks[0]
    return Stretches(model, stack, lambda: model(x))


@pytest.mark.parametrize(
    ("way", "past"),
    [
        ("plain", False),
        ("shared", True),
        ("global", True),
        ("dictionary", True),
        ("detached", False),
        ("own", False),
        ("in place", False),
    ],
)
def test_values_of_an_earlier_block_are_seen_wherever_they_are_kept(way, past):
    found = stretches(way)
    assert found.side_by_side is past
    first, second, whole = (
        dense(Linearised(*found.function(*sites))) for sites in ((0, 1), (1, 2), (0, 2))
    )
    assert torch.allclose(second @ first, whole, rtol=1e-10, atol=1e-12) is not past


@pytest.mark.parametrize("way", ["shared", "global"])
def test_exponents_are_refused_where_values_go_past_the_stream(way):
    with pytest.raises(ProbeError, match="not the product of those of its blocks"):
        leadline.lyapunov(Model(way).double(), inputs(), k=2, anatomy=DECLARED)


def test_exponents_are_there_where_what_is_kept_has_no_gradient():
    found = leadline.lyapunov(Model("own").double(), inputs(), k=2, anatomy=DECLARED).lyapunov
    plain = leadline.lyapunov(Model().double(), inputs(), k=2, anatomy=DECLARED).lyapunov
    assert (found.exponents == plain.exponents).all()


def test_looking_takes_one_pass_and_is_done_once():
    model, x = Model().double(), inputs()
    stack = leadline.anatomy_of(model, x, anatomy=DECLARED).stacks[0]
    passes = 0

    def forward():
        nonlocal passes
        passes += 1
        return model(x)

    found = Stretches(model, stack, forward)
    assert passes == 1  # who does not ask does not pay
    assert not found.side_by_side and not found.side_by_side
    assert passes == 2


def test_a_model_that_cannot_be_looked_through_is_not_said_to_be_clean(monkeypatch):
    found = stretches("plain")

    def broken(*_):
        raise RuntimeError("no leaves here")

    monkeypatch.setattr(Leaves, "instead_of", broken)
    assert found.side_by_side


def test_a_leaf_is_found_behind_many_steps():
    leaves = Leaves()
    with graphs_only():
        first = leaves.instead_of(torch.ones(3))
        second = leaves.instead_of(first * 2)
        leaves.look_behind((second.exp() + 1).sum())
        assert not leaves.passed
        leaves.look_behind((second.exp() + first.sin().cos()).sum())
    assert leaves.passed


def test_nothing_is_saved_for_gradients_while_graphs_are_looked_at():
    x = torch.ones(3, requires_grad=True)
    with torch.no_grad(), graphs_only():
        y = x.exp()
    assert y.grad_fn is not None
    with pytest.raises(RuntimeError, match="inspection only"):
        y.sum().backward()


@pytest.mark.parametrize(
    ("name", "past"), [("gpt2", False), ("recurrent_gemma", False), ("zaya", True)]
)
def test_models_of_the_zoo_are_seen_as_they_are(name, past):
    from leadline.instruments.passes.running import call
    from leadline.models.inputs.for_model import batch_for
    from leadline.testing.zoo import ZOO

    model = ZOO[name].build(0).eval()
    batch = batch_for(model, ZOO[name].inputs(model, 1), 0)
    stack = leadline.anatomy_of(model, batch).stacks[0]
    with untouched(model):
        assert Stretches(model, stack, lambda: call(model, batch))._goes_past() is past
