"""What the tap hands on: every stream, update and gradient in its place and its right size."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import leadline
from leadline.anatomy import Block, Stack, Sublayer, Tap, read_anatomy, untouched
from leadline.errors import AnatomyError
from leadline.testing.tiny import MeanAttention

WIDTH = 8
Tensor = torch.Tensor


class _Heard:
    """A listener that keeps copies."""

    def __init__(self) -> None:
        self.streams: dict[tuple[int, int | None], Tensor] = {}
        self.updates: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        self.blocks: dict[int, tuple[Tensor, Tensor]] = {}
        self.gradients: dict[tuple[int, int | None], Tensor] = {}

    def stream(self, stack: Stack, layer: int, sublayer: int | None, x: Tensor) -> None:
        self.streams[layer, sublayer] = x.clone()

    def update(self, stack: Stack, block: Block, write: Sublayer, u: Tensor, x: Tensor) -> None:
        self.updates[block.layer, write.sublayer] = (u.clone(), x.clone())

    def block(self, stack: Stack, block: Block, before: Tensor, after: Tensor) -> None:
        self.blocks[block.layer] = (before.clone(), after.clone())

    def gradient(self, stack: Stack, layer: int, sublayer: int | None, g: Tensor) -> None:
        self.gradients[layer, sublayer] = g.clone()


class _Layer(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.attention = MeanAttention(0.6)
        self.mlp = nn.Linear(WIDTH, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.drop = nn.Dropout(0.0)
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "gains":
            self.middle = 0.9 * x + 0.25 * self.attention(self.norm1(x))
            return 0.8 * self.middle + 0.5 * self.mlp(self.norm2(self.middle))
        if self.kind == "parallel":
            return x + self.attention(self.norm1(x)) + self.mlp(self.norm1(x))
        if self.kind == "opened":
            x = self.norm1(x)
            self.middle = x + self.attention(x)
            return self.middle + self.mlp(self.norm2(self.middle))
        if self.kind == "post":
            self.middle = self.norm1(x + self.attention(x))
            return self.norm2(self.middle + self.mlp(self.middle))
        if self.kind == "one dropout":
            self.middle = x + self.drop(2 * self.attention(self.norm1(x)))
            return self.middle + self.drop(2 * self.mlp(self.norm2(self.middle)))
        if self.kind == "one norm":
            self.middle = self.norm1(x + self.attention(x))
            return self.norm1(self.middle + self.mlp(self.middle))
        if self.kind == "in place":
            x += self.attention(x)
            return x + self.mlp(self.norm2(x))
        if self.kind == "vector":
            self.middle = x + self.scale * self.attention(self.norm1(x))
            return self.middle + self.mlp(self.norm2(self.middle))
        raise AssertionError(self.kind)


class _Model(nn.Module):
    def __init__(self, kind: str, depth: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(_Layer(kind) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def _stream(seed: int = 0) -> Tensor:
    return torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(seed))


def _heard(kind: str) -> tuple[_Heard, _Model, Tensor, Tap]:
    model, x = _Model(kind).eval(), _stream(1)
    fit = _stream()
    with untouched(model):
        anatomy = read_anatomy(model, lambda: model(fit), lambda: model(x))
        heard = _Heard()
        with Tap(model, anatomy, heard, gradients=True) as tap:
            output = model(x)
        (output * _stream(2)).sum().backward()
    return heard, model, x, tap


def _by_hand(model: _Model, x: Tensor) -> dict[tuple[int, int | None], Tensor]:
    """Streams with their gradients, by keeping every tensor of a plain run."""
    x = x.clone().requires_grad_(True)
    kept: dict[tuple[int, int | None], Tensor] = {(0, None): x}
    y = x
    for number, layer in enumerate(model.layers, start=1):
        y = layer(y)
        y.retain_grad()
        kept[number, None] = y
        if hasattr(layer, "middle"):
            layer.middle.retain_grad()  # pyright: ignore
            kept[number, 1] = layer.middle  # pyright: ignore
    (y * _stream(2)).sum().backward()
    return kept


@pytest.mark.parametrize("kind", ["gains", "post", "opened", "one dropout", "one norm", "parallel"])
def test_streams_and_gradients_are_those_of_a_plain_run(kind: str) -> None:
    heard, model, x, tap = _heard(kind)
    truth = _by_hand(model, x)
    assert set(heard.streams) == set(truth) == set(heard.gradients)
    for key, tensor in truth.items():
        torch.testing.assert_close(heard.streams[key], tensor.detach(), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(heard.gradients[key], tensor.grad, rtol=1e-4, atol=1e-6)
    assert tap.balance().eps <= 4
    assert not tap.without_gradient


def test_updates_are_scaled_and_stand_beside_the_stream_before_them() -> None:
    heard, model, x, _ = _heard("gains")
    layer = model.layers[0]
    with torch.no_grad():
        first = 0.25 * layer.attention(layer.norm1(x))  # pyright: ignore
        middle = 0.9 * x + first
        second = 0.5 * layer.mlp(layer.norm2(middle))  # pyright: ignore
        after = 0.8 * middle + second
    torch.testing.assert_close(heard.updates[1, 1], (first, x))
    torch.testing.assert_close(heard.updates[1, 2], (second, middle))
    torch.testing.assert_close(heard.blocks[1], (x, after))


def test_parallel_writes_both_stand_beside_what_entered() -> None:
    heard, _, x, _ = _heard("parallel")
    assert torch.equal(heard.updates[1, 1][1], x) and torch.equal(heard.updates[1, 2][1], x)
    assert (1, 1) not in heard.streams


def test_an_opened_block_writes_to_its_normed_stream() -> None:
    heard, model, x, _ = _heard("opened")
    torch.testing.assert_close(heard.updates[1, 1][1], model.layers[0].norm1(x).detach())  # pyright: ignore
    assert torch.equal(heard.blocks[1][0], x)


def test_what_entered_a_block_that_works_in_place_is_remembered() -> None:
    model, x = _Model("in place").eval(), _stream(1)
    heard = _Heard()
    with untouched(model):
        anatomy = read_anatomy(model, lambda: model(_stream()), lambda: model(_stream(1)))
        with Tap(model, anatomy, heard), torch.no_grad():
            model(x.clone())
    with torch.no_grad():
        after = model.layers[0](x.clone())
    assert torch.equal(heard.blocks[1][0], x) and torch.equal(heard.streams[0, None], x)
    torch.testing.assert_close(heard.blocks[2][0], after)


def test_a_vector_gain_is_part_of_the_update_and_its_middle_has_no_gradient() -> None:
    heard, model, x, _ = _heard("vector")
    layer = model.layers[0]
    with torch.no_grad():
        expected = layer.scale * layer.attention(layer.norm1(x))  # pyright: ignore
    torch.testing.assert_close(heard.updates[1, 1][0], expected)
    # One factor per feature: the gradient of the returned tensor is not that of the stream.
    assert (1, 1) not in heard.gradients and (1, None) in heard.gradients


def test_a_stream_without_gradient_is_named() -> None:
    class Cut(_Model):
        def forward(self, x: Tensor) -> Tensor:  # pyright: ignore
            with torch.no_grad():
                x = self.layers[0](x)
            return self.layers[1](x)

    model, x = Cut("parallel").eval(), _stream()
    record = leadline.measure(model, x, loss=lambda output, inputs: output.square().sum())
    refused = record.provenance["coverage"]["refused"]
    assert {r["what"] for r in refused if "carries no gradient" in r["why"]} == {
        "gradient at encoder layer 0",
        "gradient at encoder layer 1",
    }


def test_tokens_before_examples_are_turned_round() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=0.0, norm_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x = torch.randn(5, 3, WIDTH)
    record = leadline.measure(model, x, probes="stream,tokens")
    spread = x - x.mean(0)
    expected = spread.transpose(0, 1).flatten(1).norm(dim=1).mean()
    found = record.by_layer("tokens.residual", statistic="mean").values[0]
    assert found == pytest.approx(float(expected), rel=1e-5)
    without = record.by_layer("stream.norm", statistic="mean_without_first").values[0]
    assert without == pytest.approx(float(x[1:].norm(dim=-1).mean()), rel=1e-5)


def test_a_pass_that_ends_early_is_an_error() -> None:
    model, x = _Model("parallel").eval(), _stream()
    anatomy = leadline.anatomy_of(model, x)
    with Tap(model, anatomy) as tap, torch.no_grad():
        model.layers[0](x)
    with pytest.raises(AnatomyError, match="1 of the 2 layers"):
        tap.balance()


def test_the_worst_token_is_what_counts() -> None:
    model, x = _Model("parallel").eval(), _stream()
    anatomy = leadline.anatomy_of(model, x)

    def spoil(module: nn.Module, args: object, output: Tensor) -> Tensor:
        output = output.clone()
        output[1, 3] += 1e-3
        return output

    with Tap(model, anatomy) as tap, torch.no_grad():
        handle = model.layers[1].mlp.register_forward_hook(spoil)  # pyright: ignore
        after = model(x)
        handle.remove()
    with torch.no_grad():
        before = model.layers[0](x)
    balance = tap.balance()
    size = max(float(before[1, 3].norm()), float(after[1, 3].norm()))
    wrong = 1e-3 * WIDTH**0.5 / size / torch.finfo(torch.float32).eps
    assert (balance.layer, balance.eps) == (2, pytest.approx(wrong, rel=1e-2))
    assert balance.per_layer["encoder", 1] <= 4


def test_the_faintest_update_is_told_in_units_of_rounding() -> None:
    model, x = _Model("parallel").eval(), _stream()
    with torch.no_grad():
        model.layers[1].mlp.weight.mul_(1e-3)  # pyright: ignore
        model.layers[1].mlp.bias.mul_(1e-3)  # pyright: ignore
    anatomy = leadline.anatomy_of(model, x)
    with torch.no_grad():
        middle = model.layers[0](x)
        update = model.layers[1].mlp(model.layers[1].norm1(middle))  # pyright: ignore
    expected = float(update[0].norm() / middle[0].norm()) / torch.finfo(torch.float32).eps
    assert anatomy.balance is not None
    assert anatomy.balance.faintest == pytest.approx(expected, rel=1e-3)
