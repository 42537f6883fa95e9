"""State that a model keeps in objects, arrays and hidden modules, or makes on its way, is put back."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from leadline.anatomy import own_depth, untouched


class _Entries(dict[str, Any]):
    def __setitem__(self, key: str, value: Any) -> None:
        raise TypeError("closed")


class _Output(OrderedDict[str, Any]):
    pass


@dataclass
class _Counts:
    calls: int = 0
    rows: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class _Slots:
    calls: int = 0
    late: Any = None


class _Shared:
    """Somebody else's: a thread may be using it."""

    def __init__(self) -> None:
        self.lock, self.calls = threading.Lock(), 0


class _Keeping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.usage = np.zeros(2)
        self.space = SimpleNamespace(calls=0, inner=SimpleNamespace(total=torch.zeros(2)))
        self.counts, self.slots, self.shared = _Counts(), _Slots(), _Shared()
        self.entries = _Entries(calls=0)
        self.output = _Output(first=1, second=2)
        self.output.note = "before"
        self.hidden = [nn.BatchNorm1d(3)]
        self.loose = [nn.Parameter(torch.ones(2))]
        self.deep = SimpleNamespace(a=SimpleNamespace(b=SimpleNamespace(c=SimpleNamespace(d=0))))

    def forward(self, x: Tensor) -> Tensor:
        self.usage += 1
        self.space.calls += 1
        self.space.inner.total += 1
        self.space.new = x
        self.counts.calls += 1
        self.counts.rows.append(x)
        self.slots.calls += 1
        self.slots.late = [x]
        self.shared.calls += 1
        dict.__setitem__(self.entries, "calls", 1)
        dict.__setitem__(self.entries, "more", x)
        self.output.move_to_end("first")
        self.output.note = "after"
        self.deep.a.b.c.d += 1
        self.other = SimpleNamespace(calls=1)
        self.loose[0].grad = torch.ones(2)
        return self.hidden[0](x)


def test_objects_and_arrays_have_their_content_back():
    model = _Keeping()
    usage, space = model.usage, model.space
    with untouched(model):
        model(torch.randn(4, 3))
    assert model.usage is usage and not usage.any()
    assert model.space is space and vars(space).keys() == {"calls", "inner"}
    assert space.calls == 0 and not space.inner.total.any()
    assert model.counts == _Counts() and model.slots == _Slots()
    assert model.entries == {"calls": 0}
    assert list(model.output) == ["first", "second"] and model.output.note == "before"
    assert not hasattr(model, "other")
    # What lies too deep, and what others may be using, is left alone.
    assert model.deep.a.b.c.d == 1 and model.shared.calls == 1


def test_modules_and_parameters_in_plain_lists_are_put_back():
    model = _Keeping()
    norm, weight = model.hidden[0], model.loose[0]
    weight.grad = kept = torch.zeros(2)
    with untouched(model):
        assert weight.grad is None
        model(torch.randn(4, 3))
        assert norm.num_batches_tracked == 1 and norm.running_mean.any()
    assert norm.num_batches_tracked == 0 and not norm.running_mean.any()
    assert weight.grad is kept and norm.training


class _Lazy(nn.Module):
    """Makes its parts when it needs them."""

    def __init__(self) -> None:
        super().__init__()
        self.first: nn.Module | None = None
        self.linear = nn.Linear(3, 3)
        self.register_buffer("scale", torch.ones(1))
        self.register_parameter("shift", None)

    def forward(self, x: Tensor) -> Tensor:
        if self.first is None:
            self.first = nn.Linear(3, 3)
            self.second = nn.Linear(3, 3)
            self.register_buffer("mean", x.mean(0), persistent=False)
            self.shift = nn.Parameter(torch.zeros(3))
            self.linear = nn.Linear(3, 3)
            self.scale = torch.zeros(1)
        return self.first(self.linear(x) + self.shift - self.mean)


def test_what_a_pass_has_made_is_taken_away_again():
    model = _Lazy()
    names, parts = list(model.state_dict()), dict(model.named_modules())
    tensors = list(model.state_dict(keep_vars=True).values())
    torch.manual_seed(0)
    with untouched(model):
        model(torch.randn(4, 3))
        assert len(list(model.parameters())) == 7
    assert list(model.state_dict()) == names and dict(model.named_modules()) == parts
    after = model.state_dict(keep_vars=True).values()
    assert all(a is b for a, b in zip(after, tensors, strict=True))
    assert model.first is None and model.shift is None and not hasattr(model, "second")
    assert model._non_persistent_buffers_set == set()
    torch.manual_seed(0)
    x = torch.randn(4, 3)
    y = model(x)  # makes the same parts as without a measurement
    torch.manual_seed(0)
    other = _Lazy()
    other.linear.load_state_dict(parts["linear"].state_dict())
    torch.manual_seed(0)
    assert torch.equal(other(torch.randn(4, 3)), y)


@pytest.mark.parametrize("hooks", [False, True])
def test_what_hooks_have_kept_is_put_back_if_asked_for(hooks):
    model, features, count = nn.Linear(2, 2), [], 0

    class Keeper:
        def __init__(self) -> None:
            self.calls = 0

        def take(self, *_: object) -> None:
            self.calls += 1

    def hook(_module, _args, output):
        nonlocal count
        count += 1
        features.append(output)

    keeper = Keeper()
    model.register_forward_hook(hook)
    model.register_forward_pre_hook(keeper.take)
    with untouched(model, hooks=hooks):
        model(torch.ones(2))
        assert (count, len(features), keeper.calls) == (1, 1, 1)
    assert (count, len(features), keeper.calls) == ((0, 0, 0) if hooks else (1, 1, 1))


def test_passes_inside_are_known_to_be_ours_in_this_thread_alone():
    depths: list[int] = []
    model = nn.Linear(2, 2)
    assert own_depth() == 0
    with untouched(model), untouched(model):
        thread = threading.Thread(target=lambda: depths.append(own_depth()))
        thread.start()
        thread.join()
        depths.append(own_depth())
    assert depths == [0, 2] and own_depth() == 0
