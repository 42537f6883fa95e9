"""What discovery sees in models made for the purpose, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import leadline
from leadline.anatomy import Anatomy, declare, judge, read_anatomy
from leadline.anatomy.find.sublayer_roles import pulled_back
from leadline.errors import AnatomyError, BalanceError
from leadline.testing.tiny import Linear, MeanAttention

WIDTH = 16


def _stream(seed: int, *, examples: int = 3, tokens: int = 7) -> torch.Tensor:
    return torch.randn(examples, tokens, WIDTH, generator=torch.Generator().manual_seed(seed))


def _read(model: nn.Module, **options: object) -> Anatomy:
    model.eval()
    first, second = _stream(0), _stream(1)
    return read_anatomy(model, lambda: model(first), lambda: model(second), **options)  # pyright: ignore


class _Stack(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class _Block(nn.Module):
    """One equation per kind; attention moves other tokens, the MLP does not."""

    def __init__(self, kind: str, *, gain: float = 1.0, keep: float = 1.0) -> None:
        super().__init__()
        self.kind, self.gain, self.keep = kind, gain, keep
        self.attention = MeanAttention(0.6)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "pre":
            x = self.keep * x + self.gain * self.attention(self.norm1(x))
            return self.keep * x + self.gain * self.mlp(self.norm2(x))
        if self.kind == "post":
            x = self.norm1(self.keep * x + self.gain * self.attention(x))
            return self.norm2(self.keep * x + self.gain * self.mlp(x))
        if self.kind == "parallel":
            return x + self.attention(self.norm1(x)) + self.mlp(self.norm1(x))
        if self.kind == "vector":
            x = x + self.scale * self.attention(self.norm1(x))
            return x + self.mlp(self.norm2(x))
        if self.kind == "in place":
            x += self.attention(x)
            return x + self.mlp(self.norm2(x))
        if self.kind == "against autograd":
            x += self.attention(self.norm1(x))
            return x + self.mlp(self.norm2(x))
        if self.kind == "no residual":
            return self.mlp(self.attention(self.norm1(x)))
        raise AssertionError(self.kind)


def _blocks(kind: str, depth: int = 3, **options: float) -> _Stack:
    torch.manual_seed(0)
    return _Stack(*(_Block(kind, **options) for _ in range(depth)))


def test_pre_norm_is_read_as_such() -> None:
    block = _read(_blocks("pre")).stacks[0].blocks[0]
    assert [(s.role, s.placement) for s in block.sublayers] == [
        ("attention", "pre"),
        ("mlp", "pre"),
    ]
    assert [s.module for s in block.sublayers] == ["layers.0.attention", "layers.0.mlp"]


def test_post_norm_is_read_with_its_settling_norms() -> None:
    block = _read(_blocks("post")).stacks[0].blocks[1]
    assert [s.settle for s in block.sublayers] == ["layers.1.norm1", "layers.1.norm2"]
    assert block.placement == "post"


@pytest.mark.parametrize("kind", ["pre", "post"])
def test_keep_and_gain_of_every_write_are_found(kind: str) -> None:
    block = _read(_blocks(kind, gain=0.3, keep=0.8)).stacks[0].blocks[0]
    assert [s.keep for s in block.sublayers] == pytest.approx([0.8, 0.8], rel=1e-5)
    assert [s.gain for s in block.sublayers] == pytest.approx([0.3, 0.3], rel=1e-5)


def test_gains_that_differ_from_layer_to_layer_are_fitted_one_by_one() -> None:
    torch.manual_seed(0)
    model = _Stack(*(_Block("pre", gain=1 / (i + 1)) for i in range(4)))
    anatomy = _read(model)
    found = [b.sublayers[0].gain for b in anatomy.stacks[0].blocks]
    assert found == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4], rel=1e-5)


def test_parallel_branches_are_told_from_sequential_ones() -> None:
    assert _read(_blocks("parallel")).stacks[0].blocks[0].parallel
    assert not _read(_blocks("pre")).stacks[0].blocks[0].parallel


def test_a_parameter_that_scales_the_update_is_named() -> None:
    first, second = _read(_blocks("vector")).stacks[0].blocks[2].sublayers
    assert first.gain == "layers.2.scale"
    assert second.gain == 1.0
    assert "layers.2.scale" in first.parameters


def test_a_block_that_works_in_place_balances() -> None:
    anatomy = _read(_InPlace(_blocks("in place")))
    assert anatomy.stacks[0].blocks[0].in_place
    assert anatomy.balance is not None and anatomy.balance.eps < 1


def test_a_block_whose_gradient_torch_refuses_is_refused_by_name() -> None:
    with pytest.raises(AnatomyError, match=r"Gradients inside 'inner\.layers\.0' fail.*in-?place"):
        _read(_InPlace(_blocks("against autograd")))


class _InPlace(nn.Module):
    """Hands a copy to the blocks, which change it."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x.clone())


def test_blocks_without_a_residual_are_refused() -> None:
    with pytest.raises(AnatomyError, match=r"what 'layers\.0\.mlp' returned, without the stream"):
        _read(_blocks("no residual"))


def test_a_residual_tower_that_never_mixes_tokens_is_no_transformer() -> None:
    class Tower(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mlp = nn.Linear(WIDTH, WIDTH)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.mlp(x)

    with pytest.raises(AnatomyError, match="none of them moves other tokens"):
        _read(_Stack(Tower(), Tower()))


class _Convolution(nn.Module):
    """A residual block of a convolutional network: [example, channel, height, width]."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(4)
        self.mix = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mix(self.norm(x))


def test_a_convolutional_network_is_refused_because_features_stand_before_places() -> None:
    # It balances, but its channels would be taken for tokens.
    model = nn.Sequential(_Convolution(), _Convolution()).eval()
    x = torch.randn(2, 4, 5, 6, generator=torch.Generator().manual_seed(0))
    with pytest.raises(AnatomyError, match="In '0' the features stand before the places"):
        read_anatomy(model, lambda: model(x), lambda: model(x))


def test_the_convolutions_beside_a_transformer_do_not_hide_why_it_was_refused() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.picture = nn.ModuleList(_Convolution() for _ in range(2))
            self.blocks = _blocks("no residual")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            picture = torch.ones(2, 4, 5, 6)
            for block in self.picture:
                picture = block(picture)
            return self.blocks(x) + picture.mean()

    model = Both().eval()
    with pytest.raises(AnatomyError) as caught:
        _read(model)
    first = str(caught.value).partition("balances. ")[2]
    assert first.startswith("In layer 1 ('blocks.layers.0') the output is what")
    assert "the features stand before the places" not in first


def test_a_model_without_repeated_blocks_is_refused() -> None:
    with pytest.raises(AnatomyError, match="no row of repeated blocks"):
        _read(nn.Sequential(nn.Linear(WIDTH, 5), nn.ReLU(), nn.Linear(5, 2)))


def test_a_convolutional_network_is_refused() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3))
    image = torch.randn(2, 3, 8, 8)
    with pytest.raises(AnatomyError):
        leadline.anatomy_of(model, image)


def test_blocks_held_as_attributes_are_found() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second = _Block("pre"), _Block("pre")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x))

    assert [b.module for b in _read(Named()).stacks[0].blocks] == ["first", "second"]


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_torch_encoders_are_read_on_either_token_axis(norm_first: bool, batch_first: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        WIDTH, 4, 32, dropout=0.0, norm_first=norm_first, batch_first=batch_first
    )
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    anatomy = _read(model)
    stack = anatomy.stacks[0]
    assert stack.token_axis == (1 if batch_first else 0)
    assert stack.blocks[0].placement == ("pre" if norm_first else "post")
    assert [s.role for s in stack.blocks[0].sublayers] == ["attention", "mlp"]


@pytest.mark.parametrize("batch_first", [True, False])
def test_a_declaration_finds_the_token_axis_too(batch_first: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        WIDTH, 4, 32, dropout=0.0, norm_first=True, batch_first=batch_first
    )
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    stack = _read(model, declared=declare(blocks="layers", writes=["dropout1", "dropout2"])).stacks[
        0
    ]
    assert stack.token_axis == (1 if batch_first else 0)
    assert [s.role for s in stack.blocks[0].sublayers] == ["attention", "mlp"]


# --- weights that are zero ---------------------------------------------------------------------


@pytest.mark.parametrize("asleep", ["attention.out", "mlp.2", "both", "first block", "values"])
def test_branches_that_start_at_zero_are_read_like_those_that_do_not(asleep: str) -> None:
    names = {
        "attention.out": ("attention.out.weight", "attention.out.bias"),
        "mlp.2": ("mlp.2.weight", "mlp.2.bias"),
        "both": ("attention.out.weight", "attention.out.bias", "mlp.2.weight", "mlp.2.bias"),
        "first block": ("layers.0.attention.out.weight", "layers.0.attention.out.bias"),
        # The update is a constant, the bias of the projection, and moves with no token.
        "values": ("attention.value.weight", "attention.value.bias"),
    }[asleep]
    torch.manual_seed(0)
    model = _Stack(*(_Projecting() for _ in range(3)))
    expected = _read(model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(names):
                parameter.zero_()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    anatomy = _read(model)
    assert [str(block) for block in anatomy.stacks[0].blocks] == [
        str(block) for block in expected.stacks[0].blocks
    ]
    assert [s.role for s in anatomy.stacks[0].blocks[0].sublayers] == ["attention", "mlp"]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_declaration_tells_branches_that_start_at_zero_apart() -> None:
    torch.manual_seed(0)
    model = _Stack(*(_Projecting() for _ in range(2)))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "attention.out" in name or "mlp.2" in name:
                parameter.zero_()
    anatomy = _read(model, declared=declare(blocks="layers", writes=["attention", "mlp"]))
    assert [s.role for s in anatomy.stacks[0].blocks[0].sublayers] == ["attention", "mlp"]


def test_gains_that_start_at_zero_are_named() -> None:
    class Gated(_Projecting):
        def __init__(self) -> None:
            super().__init__()
            self.alpha = nn.Parameter(torch.zeros(()))
            self.beta = nn.Parameter(torch.zeros(WIDTH))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + self.alpha * self.attention(self.norm1(x))
            return x + self.beta * self.mlp(self.norm2(x))

    torch.manual_seed(0)
    model = _Stack(*(Gated() for _ in range(3)))
    anatomy = _read(model)
    sublayers = anatomy.stacks[0].blocks[1].sublayers
    assert [s.gain for s in sublayers] == ["layers.1.alpha", "layers.1.beta"]
    assert [s.role for s in sublayers] == ["attention", "mlp"]
    assert "layers.1.alpha" in sublayers[0].parameters
    # The same equation holds once the gains have moved.
    with torch.no_grad():
        for block in model.layers:
            block.alpha.fill_(0.3)  # pyright: ignore
            block.beta.fill_(-0.7)  # pyright: ignore
    moved = judge(model, anatomy, lambda: model(_stream(1)))
    assert moved.eps < 4 and not torch.equal(model(_stream(1)), _stream(1))


class _MeanWithWeights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.value, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.value(x).mean(dim=1, keepdim=True).expand_as(x))


class _Projecting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = _MeanWithWeights()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def test_parameters_of_modules_that_are_never_called_belong_to_the_one_around_them() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(WIDTH, WIDTH)
            self.scales = nn.ParameterDict({"default": nn.Parameter(torch.full((WIDTH,), 0.5))})

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x * self.scales["default"])

    torch.manual_seed(0)
    model = _Stack(*(_Projecting() for _ in range(2)))
    for block in model.layers:
        block.mlp = Scaled()
    first, second = _read(model).stacks[0].blocks[0].sublayers
    assert "layers.0.mlp.scales.default" in second.parameters
    assert "layers.0.mlp.scales.default" not in first.parameters


# --- between blocks ----------------------------------------------------------------------------


def test_what_happens_between_blocks_is_remarked_on() -> None:
    class Shifting(_Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x) + 0.5
            return x

    torch.manual_seed(0)
    anatomy = _read(Shifting(*(_Block("pre") for _ in range(3))))
    assert anatomy.stacks[0].depth == 3
    assert "something else changes the stream" in anatomy.remarks[0]
    assert not _read(_blocks("pre")).remarks


def test_duplicates_do_not_share_a_coefficient() -> None:
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = MeanAttention(0.6)
            self.outer = nn.Sequential(self.attention, nn.Identity(), nn.Identity())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.outer(x)

    sublayer = _read(_Stack(Wrapped(), Wrapped())).stacks[0].blocks[0].sublayers
    assert len(sublayer) == 1 and sublayer[0].gain == 1.0


def test_the_toy_of_known_answers_takes_its_declaration() -> None:
    anatomy = _read(Linear(5), declared=declare(blocks="layers", writes=["attention", "mlp"]))
    assert anatomy.stacks[0].depth == 5
    assert anatomy.sublayers == 10
    assert "mixer: x <- x + attention" not in str(anatomy)
    assert "attention: x <- x + attention" in str(anatomy)


def test_training_mode_with_dropout_functions_is_refused_with_a_hint() -> None:
    class Dropping(_Block):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + nn.functional.dropout(self.attention(self.norm1(x)), 0.5, training=True)
            return x + self.mlp(self.norm2(x))

    torch.manual_seed(0)
    with pytest.raises((BalanceError, AnatomyError)):
        _read(_Stack(*(Dropping("pre") for _ in range(3))))


def test_a_gradient_of_a_number_has_the_bits_of_one_that_is_given_its_cotangent():
    generator = torch.Generator().manual_seed(0)
    x, other = (torch.randn(3, 5, generator=generator).requires_grad_(True) for _ in range(2))
    output, cotangent = torch.tanh(x @ x.T @ x), torch.randn(3, 5, generator=generator)
    expected = torch.autograd.grad(output, x, cotangent, retain_graph=True)[0]
    gradient, missing = pulled_back(output, cotangent, [x, other])
    assert missing is None
    assert torch.equal(gradient, expected)
