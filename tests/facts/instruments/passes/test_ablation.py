"""Leaving out: the loss of a model without one part, by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import leadline
from leadline.testing.tiny import MeanAttention, Scale

WIDTH = 4
Tensor = torch.Tensor


class _Layer(nn.Module):
    def __init__(self, alpha: float, beta: float) -> None:
        super().__init__()
        self.attention, self.mlp = MeanAttention(alpha), Scale(beta)

    def forward(self, bias: Tensor, hidden_states: Tensor) -> tuple[Tensor, str]:
        hidden_states = hidden_states + self.attention(hidden_states)
        return hidden_states + self.mlp(hidden_states), "and something else"


class _Repeated(nn.Module):
    """One layer called three times, with another tensor before the stream."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([_Layer(0.5, -0.25)])

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            # What stands between the calls makes it matter which one is left out.
            x, _ = self.layers[0](torch.zeros(3, 3), hidden_states=x)
            x = _between(x)
        return x


def _between(x: Tensor) -> Tensor:
    return x.tanh().roll(1, dims=-1) * torch.tensor([1.0, -1.0, 2.0, 0.5])


def _loss(output: Tensor, inputs: object) -> Tensor:
    return (output * torch.linspace(-1, 2, WIDTH)).square().sum()


def _by_hand(x: Tensor, *, attention: tuple[float, ...], mlp: tuple[float, ...]) -> float:
    for alpha, beta in zip(attention, mlp, strict=True):
        x = x + alpha * x.mean(1, keepdim=True)
        x = x + beta * x
        x = _between(x)
    return float(_loss(x, None))


def _without(values: tuple[float, ...], index: int) -> tuple[float, ...]:
    return tuple(0.0 if i == index else v for i, v in enumerate(values))


@pytest.mark.parametrize("unit", ["block", "sublayer"])
def test_one_call_of_a_shared_layer_is_left_out_at_a_time(unit: str) -> None:
    x = torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(0))
    record = leadline.measure(
        _Repeated(),
        x,
        probes="stream",
        loss=_loss,
        ablate=unit,
        anatomy=leadline.declare(blocks="layers", writes=["attention", "mlp"]),
    )
    alphas, betas = (0.5,) * 3, (-0.25,) * 3
    whole = _by_hand(x, attention=alphas, mlp=betas)
    for index in range(3):
        if unit == "block":
            (row,) = record.select("ablation.block", layer=index + 1)
            shorter = _by_hand(x, attention=_without(alphas, index), mlp=_without(betas, index))
            assert row.value == pytest.approx(shorter - whole, rel=1e-4)
            continue
        first = _by_hand(x, attention=_without(alphas, index), mlp=betas)
        second = _by_hand(x, attention=alphas, mlp=_without(betas, index))
        found = [r.value for r in record.select("ablation.sublayer", layer=index + 1)]
        assert found == pytest.approx([first - whole, second - whole], rel=1e-4)
    assert record.provenance["passes"]["ablation_forward"] == (4 if unit == "block" else 7)


class _Dropped(nn.Module):
    """One dropout hands on both updates: it is called twice in every block."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.mlp, self.drop = MeanAttention(0.5), Scale(-0.25), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(2 * self.attention(x))
        return x + self.drop(2 * self.mlp(x).tanh())


class _Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([_Dropped()])

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            x = self.layers[0](x)
        return x


def test_a_module_that_serves_every_write_is_silenced_one_call_at_a_time() -> None:
    x = torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(0))

    def loss(left_out: int | None) -> float:
        y = x
        for call in range(2):
            y = y + (0 if left_out == 2 * call else 1) * y.mean(1, keepdim=True)
            y = y + (0 if left_out == 2 * call + 1 else 2) * (-0.25 * y).tanh()
        return float(_loss(y, None))

    record = leadline.measure(_Twice(), x, probes="stream", loss=_loss, ablate="sublayer")
    rows = record.select("ablation.sublayer")
    found = {(r.site.layer, r.site.sublayer): r.value for r in rows}
    expected = {
        (layer, sublayer): loss(2 * (layer - 1) + sublayer - 1) - loss(None)
        for layer in (1, 2)
        for sublayer in (1, 2)
    }
    assert found == pytest.approx(expected, rel=1e-4)
