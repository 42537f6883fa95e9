"""Weights that a model writes to in its own passes have their content back afterwards."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import leadline
from leadline.anatomy import model_pass, untouched
from leadline.anatomy.kept_weights import KeptWeights, apart_from_pass
from tests.plain_gpt import PlainGPT

WIDTH = 4


def _by_name(weight: nn.Parameter) -> None:
    with torch.no_grad():
        weight.mul_(0.5)


def _by_view(weight: nn.Parameter) -> None:
    weight.detach().view(-1)[1:].add_(1.0)


def _by_data(weight: nn.Parameter) -> None:
    weight.data -= 0.25


def _by_other_data(weight: nn.Parameter) -> None:
    weight.data = torch.zeros(WIDTH, WIDTH)


def _by_list(weight: nn.Parameter) -> None:
    torch._foreach_add_([weight.data], 1.0)


def _by_out(weight: nn.Parameter) -> None:
    torch.exp(weight.data, out=weight.data)


WRITES = [_by_name, _by_view, _by_data, _by_other_data, _by_list, _by_out]


class _Writing(nn.Module):
    """Writes to its weight in every pass, or only in those with gradients."""

    def __init__(self, write: Callable[[nn.Parameter], None], *, graded: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.write, self.graded = write, graded

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() or not self.graded:
            self.write(self.linear.weight)
        return self.linear(x)


def _passes(model: nn.Module) -> None:
    for gradients in (False, True, False, True):
        with torch.set_grad_enabled(gradients), model_pass():
            model(torch.ones(1, WIDTH))


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("write", WRITES)
def test_what_a_pass_writes_into_a_weight_is_undone(write, graded):
    model = _Writing(write, graded=graded)
    weight = model.linear.weight
    before, memory = weight.detach().clone(), weight.data_ptr()
    with untouched(model):
        _passes(model)
        assert not torch.equal(weight, before)
    assert torch.equal(weight, before) and weight.data_ptr() == memory
    assert model.linear.weight is weight


def test_it_is_undone_after_an_error_and_behind_an_inner_block():
    model = _Writing(_by_data)
    before = model.linear.weight.detach().clone()

    def run() -> None:
        with untouched(model):
            with untouched(model.linear):
                _passes(model)
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        run()
    assert torch.equal(model.linear.weight, before)


def test_weights_that_live_in_one_memory_are_undone_together():
    model = nn.Module()
    flat = torch.arange(8.0)
    model.a, model.b = nn.Parameter(flat[:4]), nn.Parameter(flat[4:])
    model.forward = lambda x: flat.zero_()
    with untouched(model):
        with model_pass():
            model(None)
        assert not model.b.any()
    assert flat.tolist() == list(range(8))


def test_only_what_is_written_to_is_copied():
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), _Writing(_by_data))
    copies = []

    class Counting(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is torch.ops.aten.clone.default:
                copies.append(args[0].data_ptr())
            return func(*args, **(kwargs or {}))

    with Counting(), untouched(model):
        _passes(model)
    assert copies == [model[1].linear.weight.data_ptr()]


def test_what_is_computed_about_a_pass_is_not_watched_and_the_pass_is_again(monkeypatch):
    watched = []
    monkeypatch.setattr(KeptWeights, "save", lambda self, tensor: watched.append(tensor.numel()))
    with untouched(nn.Linear(WIDTH, WIDTH)), model_pass():
        torch.zeros(1).add_(1)
        with apart_from_pass():
            torch.zeros(2).add_(1)
        torch.zeros(3).add_(1)
    assert watched == [1, 3]


def test_what_somebody_else_watches_is_seen_apart_from_the_pass_too():
    operations = []

    class Listing(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            operations.append(str(func))
            return func(*args, **(kwargs or {}))

    values = torch.zeros(2)
    for outer, inner in ((Listing(), model_pass()), (model_pass(), Listing())):
        operations.clear()
        with untouched(nn.Linear(WIDTH, WIDTH)), outer, inner, apart_from_pass():
            values.add_(1)
        assert "aten.add_.Tensor" in operations


class _Adapter(nn.Linear):
    """Adds its low-rank part into its matrix for evaluation, as loralib does."""

    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH)
        self.down, self.up = (nn.Parameter(torch.randn(*one)) for one in ((1, WIDTH), (WIDTH, 1)))
        self.merged = False

    def train(self, mode: bool = True) -> _Adapter:
        super().train(mode)
        if mode is self.merged:
            self.weight.data += (-1.0 if mode else 1.0) * (self.up @ self.down)
            self.merged = not mode
        return self

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y if self.merged else y + F.linear(F.linear(x, self.down), self.up)


def test_weights_that_evaluation_merges_are_parted_to_the_bit():
    torch.manual_seed(0)
    model = nn.Sequential(_Adapter())
    before = model[0].weight.detach().clone()
    with untouched(model):
        assert model[0].merged and not torch.equal(model[0].weight, before)
    assert not model[0].merged and model[0].training
    assert torch.equal(model[0].weight, before)


class _Averaging(PlainGPT):
    """Keeps an average of its head in another one, made anew in every pass."""

    def __init__(self) -> None:
        super().__init__(["none", "none"])
        self.average = nn.Parameter(torch.zeros(3), requires_grad=False)

    def forward(self, tokens: Tensor) -> Tensor:
        with torch.no_grad():
            self.average.mul_(0.9).add_(1.0)
        return super().forward(tokens)


@pytest.mark.parametrize("entry", ["measure", "anatomy_of", "diagnose"])
def test_a_measurement_leaves_an_average_of_weights_alone(entry):
    model = _Averaging()
    getattr(leadline, entry)(model, torch.arange(16).view(2, 8))
    assert not model.average.any()


class _InPlace(PlainGPT):
    """Replaces the first words in the tokens that it is given."""

    def forward(self, tokens: Tensor) -> Tensor:
        tokens[tokens < 3] = 5
        return super().forward(tokens)


@pytest.mark.parametrize("entry", ["measure", "anatomy_of"])
def test_a_measurement_leaves_its_inputs_as_they_are(entry):
    tokens = torch.arange(16).view(2, 8)
    getattr(leadline, entry)(_InPlace(["none", "none"]), tokens)
    assert tokens.flatten().tolist() == list(range(16))
