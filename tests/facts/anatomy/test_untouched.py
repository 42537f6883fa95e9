"""What a forward pass changes in a model is put back."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import leadline
from leadline.anatomy import untouched, unwrapped

WIDTH = 8


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x.mean(1, keepdim=True).expand_as(x))
        return x + self.mlp(x)


class _Restless(nn.Module):
    """Counts its calls in one buffer, replaces another, draws numbers, drops out."""

    count: torch.Tensor
    last: torch.Tensor

    def __init__(self, drop: float = 0.5) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(_Block() for _ in range(2))
        self.dropout = nn.Dropout(drop)
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("last", torch.zeros(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        self.last = x.detach()[0, 0]
        x = self.dropout(x) + 0 * torch.rand(1)
        for layer in self.layers:
            x = layer(x)
        return x


def _stream() -> torch.Tensor:
    return torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("entry", ["measure", "anatomy_of"])
def test_buffers_and_the_random_state_are_put_back(entry: str) -> None:
    model = _Restless().train()
    count, last = model.count, model.last
    torch.manual_seed(17)
    state = torch.random.get_rng_state()
    getattr(leadline, entry)(model, _stream())
    assert model.count is count and float(count) == 0.0
    assert model.last is last and not last.any()
    assert torch.equal(torch.random.get_rng_state(), state)
    assert model.training and model.dropout.training


def test_a_model_in_training_is_measured_in_eval_mode() -> None:
    x = _stream()
    training = leadline.measure(_Restless().train(), x, probes="stream")
    plain = leadline.measure(_Restless(0.0).eval(), x, probes="stream")
    assert list(training["stream.norm"].values) == list(plain["stream.norm"].values)


def test_it_is_all_put_back_after_an_exception() -> None:
    model = _Restless().train()
    weight = model.layers[0].mlp.weight  # pyright: ignore
    weight.grad = kept = torch.ones_like(weight)

    def interrupted() -> None:
        with untouched(model):
            assert not model.training
            assert weight.grad is None
            model(_stream())
            weight.requires_grad_(False)
            weight.grad = torch.zeros_like(weight)
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        interrupted()
    assert model.training and float(model.count) == 0.0
    assert weight.requires_grad and weight.grad is kept and bool((kept == 1).all())


def test_wrappers_are_taken_off() -> None:
    model = _Restless()
    assert unwrapped(model) is model
    assert unwrapped(nn.DataParallel(model)) is model
    assert unwrapped(nn.DataParallel(nn.DataParallel(model))) is model
