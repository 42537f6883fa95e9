"""Names, owners, and what a declaration says beyond its paths."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import leadline
from leadline.anatomy import Anatomy, Block, Port, Stack, declare, read_anatomy
from leadline.anatomy.find.discover import _name_stacks  # pyright: ignore
from leadline.testing.tiny import MeanAttention

WIDTH = 8
Tensor = torch.Tensor


def _stack(path: str, *, causal: bool | None = None) -> Stack:
    block = Block(1, path, Port(path, "input"), Port(path, "output"), ())
    return Stack(path, (block,), WIDTH, causal=causal)


@pytest.mark.parametrize(
    ("path", "causal", "name"),
    [
        ("vision_model.encoder.layers.0", False, "vision"),
        ("visual.transformer.resblocks.0", False, "vision"),
        ("audio_tower.layers.0", False, "audio"),
        ("text_model.encoder.layers.0", True, "text"),
        ("decoder.bert.encoder.layer.0", True, "decoder"),
        ("encoder.block.0", False, "encoder"),
        ("transformer.h.0", True, "decoder"),
        ("transformer.h.0", False, "encoder"),
        ("transformer.h.0", None, "encoder"),
    ],
)
def test_a_stack_is_named_by_its_path_then_by_its_causality(
    path: str, causal: bool | None, name: str
) -> None:
    assert [s.name for s in _name_stacks([_stack(path, causal=causal)])] == [name]


def test_stacks_of_one_name_are_numbered() -> None:
    stacks = [_stack("encoder.a.0"), _stack("encoder.b.0"), _stack("decoder.0")]
    assert [s.name for s in _name_stacks(stacks)] == ["encoder", "encoder-2", "decoder"]


class _Layer(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.attention = MeanAttention(0.6)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor, gain: float = 1.0) -> Tensor:
        if self.kind == "pre":
            x = x + gain * self.attention(self.norm1(x))
            return x + self.mlp(self.norm2(x))
        if self.kind == "post":
            x = self.norm1(x + self.attention(x))
            return self.norm2(x + self.mlp(x))
        if self.kind == "parallel":
            return x + self.attention(self.norm1(x)) + self.mlp(self.norm1(x))
        if self.kind == "kept":
            x = 0.8 * x + self.attention(self.norm1(x))
            return 0.9 * x + self.mlp(self.norm2(x))
        if self.kind == "in place":
            x += self.attention(x)
            return x + self.mlp(self.norm2(x))
        raise AssertionError(self.kind)


class _Model(nn.Module):
    def __init__(self, kind: str, depth: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(_Layer(kind) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        x = x.clone()
        for layer in self.layers:
            x = layer(x)
        return x


def _stream(seed: int) -> Tensor:
    return torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(seed))


def _read(model: nn.Module, **options: object) -> Anatomy:
    model.eval()
    fit, fresh = _stream(0), _stream(1)
    return read_anatomy(model, lambda: model(fit), lambda: model(fresh), **options)  # pyright: ignore


# --- whose parameters --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pre", "post"])
def test_a_norm_serves_the_write_that_it_enters_or_settles(kind: str) -> None:
    first, second = _read(_Model(kind)).stacks[0].blocks[1].sublayers
    assert set(first.parameters) == {
        "layers.1.attention.alpha",
        "layers.1.norm1.weight",
        "layers.1.norm1.bias",
    }
    assert set(second.parameters) == {
        *(f"layers.1.mlp.{i}.{name}" for i in (0, 2) for name in ("weight", "bias")),
        "layers.1.norm2.weight",
        "layers.1.norm2.bias",
    }


def test_calls_of_one_module_may_have_equations_of_their_own() -> None:
    class Repeated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layers = nn.ModuleList([_Layer("pre")])

        def forward(self, x: Tensor) -> Tensor:
            for call in range(3):
                x = self.layers[0](x, gain=1 / (call + 1))
            return x

    stack = _read(Repeated()).stacks[0]
    assert stack.shared and stack.depth == 3
    found = [block.sublayers[0].gain for block in stack.blocks]
    assert found == pytest.approx([1, 1 / 2, 1 / 3], rel=1e-5)


def test_blocks_of_one_class_need_not_be_alike() -> None:
    class Uneven(_Layer):
        def __init__(self, wide: bool) -> None:
            super().__init__("pre")
            if wide:
                self.extra = nn.Linear(WIDTH, WIDTH)

        def forward(self, x: Tensor, gain: float = 1.0) -> Tensor:
            x = super().forward(x, gain)
            return x + self.extra(x) if hasattr(self, "extra") else x

    model = _Model("pre", depth=0)
    model.layers.extend([Uneven(False), Uneven(True), Uneven(False)])
    assert [len(b.sublayers) for b in _read(model).stacks[0].blocks] == [2, 3, 2]


def test_the_stream_is_the_argument_called_hidden_states() -> None:
    class Keyed(_Layer):
        def forward(self, bias: Tensor, hidden_states: Tensor) -> Tensor:  # pyright: ignore
            return super().forward(hidden_states) + 0 * bias

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layers = nn.ModuleList(Keyed("pre") for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            # A tensor of the stream's very shape stands before it.
            for layer in self.layers:
                x = layer(bias=torch.ones_like(x), hidden_states=x)
            return x

    stack = _read(Model()).stacks[0]
    assert [s.role for s in stack.blocks[0].sublayers] == ["attention", "mlp"]
    assert stack.depth == 2


@pytest.mark.parametrize(("causal", "expected"), [((True, True), True), ((True, False), False)])
def test_a_stack_is_causal_when_all_its_mixing_is(
    causal: tuple[bool, bool], expected: bool
) -> None:
    class Mix(nn.Module):
        def __init__(self, causal: bool) -> None:
            super().__init__()
            self.causal = causal

        def forward(self, x: Tensor) -> Tensor:
            return 0.3 * (x.cumsum(1) if self.causal else x.mean(1, keepdim=True).expand_as(x))

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Mix(causal[0]), Mix(causal[1])

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.first(x)
            return x + self.second(x.tanh())

    model = _Model("pre", depth=0)
    model.layers.extend([Two(), Two()])
    stack = _read(model).stacks[0]
    assert stack.causal is expected
    assert stack.name == ("decoder" if expected else "encoder")


# --- declarations ------------------------------------------------------------------------------


def _declared(kind: str, **options: object) -> Stack:
    declaration = declare(blocks="layers", writes=["attention", "mlp"], **options)  # pyright: ignore
    return _read(_Model(kind), declared=declaration).stacks[0]


def test_a_declared_parallel_block_is_parallel() -> None:
    block = _declared("parallel", parallel=True).blocks[0]
    assert [s.parallel for s in block.sublayers] == [False, True]
    assert [s.role for s in block.sublayers] == ["attention", "mlp"]
    assert not _declared("pre").blocks[0].parallel


def test_declared_keeps_are_used() -> None:
    assert [s.keep for s in _declared("kept", keeps=[0.8, 0.9]).blocks[2].sublayers] == [0.8, 0.9]
    with pytest.raises(leadline.BalanceError):
        _declared("kept", keeps=[0.8, 0.8])


def test_a_declared_block_may_work_in_place() -> None:
    assert _declared("in place").blocks[0].in_place
    assert not _declared("pre").blocks[0].in_place


def test_a_declaration_may_name_its_stack_and_list_its_blocks() -> None:
    assert _declared("pre", name="tower").name == "tower"
    assert _declared("pre").name == "encoder"
    listed = declare(blocks=["layers.0", "layers.2"], writes=["attention", "mlp"])
    stack = _read(_Model("pre"), declared=listed).stacks[0]
    assert [b.module for b in stack.blocks] == ["layers.0", "layers.2"]


# --- roles, placements and names of writes ---------------------------------------------------


class _Cross(nn.Module):
    """Every token takes the mean of another tensor's tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        return self.out(x + memory.mean(1, keepdim=True))


class _Decoder(nn.Module):
    def __init__(self, gain: float, keep: float) -> None:
        super().__init__()
        self.gain, self.keep = gain, keep
        self.attention, self.cross, self.mlp = MeanAttention(0.6), _Cross(), nn.Linear(WIDTH, WIDTH)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(WIDTH) for _ in range(3))

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        x = self.keep * x + self.gain * self.attention(self.norm1(x))
        x = self.keep * x + self.gain * self.cross(self.norm2(x), memory)
        return self.keep * x + self.gain * self.mlp(self.norm3(x))


@pytest.mark.parametrize(("gain", "keep"), [(1.0, 1.0), (0.3, 1.0), (0.3, 0.7), (4.0, 0.5)])
def test_only_the_branch_that_reads_another_tensor_is_cross_attention(
    gain: float, keep: float
) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layers = nn.ModuleList(_Decoder(gain, keep) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            memory = x[:, :3].roll(1, dims=-1)
            for layer in self.layers:
                x = layer(x, memory)
            return x

    sublayers = _read(Model()).stacks[0].blocks[0].sublayers
    assert [s.role for s in sublayers] == ["attention", "cross-attention", "mlp"]
    assert [s.gain for s in sublayers] == pytest.approx([gain] * 3, rel=1e-4)
    assert [s.keep for s in sublayers] == pytest.approx([keep] * 3, rel=1e-4)


def test_both_branches_of_a_parallel_block_have_their_norm_before_them() -> None:
    block = _read(_Model("parallel")).stacks[0].blocks[0]
    assert [s.placement for s in block.sublayers] == ["pre", "pre"]
    assert [s.role for s in block.sublayers] == ["attention", "mlp"]


@pytest.mark.parametrize("share", [1e-3, 1e-5])
def test_a_branch_that_hardly_moves_other_tokens_is_attention_all_the_same(share: float) -> None:
    class Shy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 0.5 * x + share * x.mean(1, keepdim=True)

    class Layer(_Layer):
        def __init__(self) -> None:
            super().__init__("pre")
            self.attention = Shy()  # pyright: ignore

    model = _Model("pre", depth=0)
    model.layers.extend([Layer(), Layer()])
    assert [s.role for s in _read(model).stacks[0].blocks[0].sublayers] == ["attention", "mlp"]


class _Odd(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.attention, self.mlp = MeanAttention(0.6), nn.Linear(WIDTH, WIDTH)
        self.drop1, self.drop2, self.tanh = nn.Dropout(0.1), nn.Dropout(0.1), nn.Tanh()

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "two dropouts":
            x = x + self.drop1(self.attention(x))
            return x + self.drop2(self.mlp(x))
        if self.kind == "one dropout":
            x = x + self.drop1(self.attention(x))
            return x + self.drop1(self.mlp(x))
        x = self.tanh(x + self.attention(x))
        return x + self.mlp(x)


def _odd(kind: str) -> tuple[leadline.anatomy.Sublayer, ...]:
    model = _Model("pre", depth=0)
    model.layers.extend([_Odd(kind), _Odd(kind)])
    return _read(model).stacks[0].blocks[0].sublayers


def test_an_update_is_read_past_its_dropout_also_where_one_dropout_serves_all() -> None:
    two, one = _odd("two dropouts"), _odd("one dropout")
    assert [(s.module, s.call) for s in two] == [("layers.0.drop1", 0), ("layers.0.drop2", 0)]
    assert [(s.module, s.call) for s in one] == [("layers.0.drop1", 0), ("layers.0.drop1", 1)]
    assert [(s.role, s.parameters) for s in one] == [(s.role, s.parameters) for s in two]


def test_what_settles_a_stream_need_not_be_a_norm() -> None:
    first, second = _odd("settled")
    assert (first.settle, first.placement) == ("layers.0.tanh", "none")
    assert second.settle is None


# --- on paper ----------------------------------------------------------------------------------


def test_the_anatomy_is_printed_as_equations() -> None:
    text = str(_read(_Model("kept")))
    assert "anatomy: 3 layers, 6 sublayers, by discovery" in text
    assert "layers 1-3: layers.0 ... layers.2 (pre norm)" in text
    assert "attention: x <- 0.8 x + attention" in text
    assert "mlp: x <- 0.9 x + mlp" in text
    assert "attention: x <- norm1(x + attention)" in str(_read(_Model("post")))
