"""Whether linear maps are what they are taken for: joined blocks, finite differences, autocast."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

import leadline
from leadline.anatomy.stretch.stretch import Stretches
from leadline.instruments.passes.linear import checks
from leadline.instruments.passes.linear.checks import (
    ACROSS,
    CUT,
    JOINED,
    OPEN,
    STEP,
    cut_off,
    difference,
    joined,
)
from leadline.numerics.linear.linear_maps import dense
from leadline.numerics.linear.linearised import Linearised
from leadline.record import Record
from leadline.testing.tiny import Linear, MeanAttention

Tensor = torch.Tensor
TOKENS, WIDTH = 6, 8
DECLARED = leadline.declare(blocks="layers", writes=["attention", "mlp"])


def _stream(examples: int = 1) -> Tensor:
    return torch.randn(examples, TOKENS, WIDTH, generator=torch.Generator().manual_seed(0))


def _transformer(**fields: Any) -> tuple[leadline.Transformer, Tensor]:
    model = leadline.Transformer(depth=3, width=16, heads=2, vocabulary=13, context=8, **fields)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
    return model, torch.randint(0, 13, (2, 5), generator=generator)


def _stretches(model: nn.Module, inputs: Tensor, **options: Any) -> Stretches:
    stack = leadline.anatomy_of(model, inputs, **options).stacks[0]
    return Stretches(model, stack, lambda: model(inputs))


def _whys(record: Record) -> dict[str, str]:
    return {r["what"]: r["why"] for r in record.provenance["coverage"]["refused"]}


# --- the product of the blocks -------------------------------------------------------------------


HISTORIES: list[dict[str, Any]] = [
    {"connection": "denseformer"},
    {"connection": "depth_attention"},
    {"attention": {"name": "multihead", "value_residual": 0.5}},
]


@pytest.mark.parametrize("fields", HISTORIES, ids=str)
def test_a_history_is_a_difference_between_the_blocks_and_the_whole(fields: dict[str, Any]) -> None:
    model, ids = _transformer(**fields)
    found = _stretches(model.double(), ids)
    u = torch.randn(1, 2, 5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    u = u / torch.linalg.vector_norm(u, dim=(2, 3), keepdim=True)
    whole = Linearised(*found.function(0, 3)).adjoint(u)
    for layer in (3, 2, 1):
        u = Linearised(*found.function(layer - 1, layer)).adjoint(u)
    by_hand = torch.linalg.vector_norm(u - whole, dim=(2, 3)) / torch.linalg.vector_norm(
        whole, dim=(2, 3)
    )
    size = joined(found)
    assert size == pytest.approx(float(by_hand.max()), rel=1e-9)
    assert size is not None and size > JOINED


def test_blocks_that_hand_on_the_stream_alone_are_joined() -> None:
    model, ids = _transformer()
    found = _stretches(model, ids)
    size = joined(found)
    assert size is not None and size < 1e-5
    assert joined(found, 1, 3) == pytest.approx(0.0, abs=1e-5)


def test_a_zero_product_is_that_of_its_blocks() -> None:
    x = _stream()
    found = _stretches(Linear(3, beta=-1.0), x, anatomy=DECLARED)
    assert joined(found) == 0.0


def test_a_product_out_of_range_is_not_compared() -> None:
    assert joined(_stretches(Linear(20, beta=-0.999), _stream(), anatomy=DECLARED)) is None
    assert joined(_stretches(Linear(5, beta=-0.999), _stream(), anatomy=DECLARED)) is not None


@pytest.mark.parametrize("fields", HISTORIES, ids=str)
def test_a_record_has_no_product_of_blocks_that_a_history_goes_past(fields: dict[str, Any]) -> None:
    model, ids = _transformer(**fields)
    probes = "jacobian(through=true,k=1),lyapunov(k=2)"
    record = leadline.measure(model, ids, probes=probes)
    products = {"jacobian.partial", "jacobian.product_of_norms", "lyapunov.exponent"}
    assert not products & set(record.quantities) and "lyapunov.growth" not in record
    # One block, and the model itself between two sites, are what they were.
    assert {"jacobian.singular", "jacobian.norm", "jacobian.through"} <= set(record.quantities)
    assert record.select("jacobian.through", layer=3, statistic="mean")[0].value == pytest.approx(
        leadline.jacobian(model, ids, k=1).jacobian.values[:, 0].mean(), rel=1e-4
    )
    whys = _whys(record)
    size = f"{joined(_stretches(model, ids)):.2g}"
    for name in products:
        (why,) = (why for what, why in whys.items() if name in what)
        assert "not the product of those of its blocks" in why and size in why
    assert "jacobian.product_of_norms of the block of the decoder, layers 1 to 3" in whys


def test_a_record_of_joined_blocks_has_their_products() -> None:
    model, ids = _transformer(connection="dual", placement="post")
    record = leadline.measure(model, ids, probes="jacobian(k=1),lyapunov(k=2)")
    assert {"jacobian.partial", "jacobian.product_of_norms", "lyapunov.growth"} <= set(
        record.quantities
    )
    assert _whys(record) == {}


# --- finite differences --------------------------------------------------------------------------


class _Branches(nn.Module):
    """A block with two branches; `way` says how much of the second one gradients see."""

    def __init__(self, way: str = "", scale: float = 1.0) -> None:
        super().__init__()
        self.attention = MeanAttention(0.5)
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.mlp = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.way, self.scale = way, scale

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x)
        inner = self.up(self.norm(x.detach() if self.way == "detached" else x))
        act = torch.relu if self.way == "relu" else torch.tanh
        with torch.set_grad_enabled(self.way != "no_grad" and torch.is_grad_enabled()):
            update = self.mlp(act(inner))
        return x + self.scale * update


class _Model(nn.Module):
    def __init__(self, *ways: str, scale: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(_Branches(way, scale) for way in ways)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def _block(way: str, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return _Branches(way, scale).to(dtype)


def test_the_miss_is_that_of_the_dense_matrices() -> None:
    """<u, r> over many u: |J v - d| by whole matrices, J of the block without its detach."""
    x = _stream().double()
    block, true = _block("detached", dtype=x.dtype), _block("", dtype=x.dtype)
    found = difference(block, x, Linearised(block, x))
    assert found is not None
    draws = torch.randn(
        1 + ACROSS, *x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(2)
    )
    v = draws[0] * torch.linalg.vector_norm(x, dim=-1, keepdim=True) / math.sqrt(WIDTH)
    seen, truth = (
        (dense(Linearised(f, x)) @ v.reshape(1, -1, 1)).reshape(x.shape) for f in (block, true)
    )
    size = min(float(truth.norm()), float((truth - v).norm()))
    by_hand = (draws[1:] * (truth - seen)).sum((1, 2, 3)).square().mean().sqrt() / size
    assert found[0] == pytest.approx(float(by_hand), rel=1e-4)
    assert found[1] < 2e-3


@pytest.mark.parametrize("way", ["detached", "no_grad"])
@pytest.mark.parametrize("scale", [1.0, 0.1, 0.01])
def test_a_branch_that_is_cut_off_is_seen_however_the_draw_falls(way: str, scale: float) -> None:
    block, x = _block(way, scale), _stream(2)
    block.attention = MeanAttention(0.0)
    given = Linearised(lambda z: z + 0.0 * block(z), x)
    for seed in range(10):
        why = cut_off(block, x, given, "Layer 2", seed=seed)
        assert why is not None and why.startswith("Layer 2: autograd's Jacobian differs from")


def test_a_cut_branch_of_a_fiftieth_of_the_other_is_below_what_is_spoken_of() -> None:
    block, x = _block("detached", 0.01), _stream(2)
    assert cut_off(block, x, Linearised(block, x), "") is None


@pytest.mark.parametrize("way", ["", "relu"])
@pytest.mark.parametrize("scale", [1.0, 1e-2, 1e-4, 1e-6, 0.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_whole_block_gives_no_alarm(way: str, scale: float, dtype: torch.dtype) -> None:
    block, x = _block(way, scale, dtype), _stream(2).to(dtype)
    block.attention = MeanAttention(0.0)
    given = Linearised(block, x)
    assert all(cut_off(block, x, given, "", seed=seed) is None for seed in range(20))


def test_a_kink_at_the_very_point_is_no_alarm() -> None:
    x = torch.zeros(1, TOKENS, WIDTH)
    x[..., 0] = 1.0
    found = difference(torch.relu, x, Linearised(torch.relu, x))
    # Of v half goes on at zero, where autograd says none: one side is v, the other 0.
    assert found is None or found[0] - found[1] <= CUT
    assert cut_off(torch.relu, x, Linearised(torch.relu, x), "") is None


def test_jumps_are_not_judged() -> None:
    x = _stream()

    def jumping(z: Tensor) -> Tensor:
        return z + 0.5 * torch.tanh(z) + ((z * 1e5).round() / 1e5 * 50 - z * 50).detach()

    assert difference(jumping, x, Linearised(jumping, x)) is None


def test_nothing_is_judged_where_nothing_moves() -> None:
    x = torch.zeros(1, TOKENS, WIDTH)
    block = _block("detached")
    assert difference(block, x, Linearised(block, x)) is None


def test_the_limits_are_those_that_were_measured() -> None:
    assert (CUT, OPEN, ACROSS) == (0.05, 0.5, 4)
    assert pytest.approx(3.4527e-4, rel=1e-4) == STEP


RELU_AND_EXPERTS = ["mobilebert", "opt", "speech_to_text", "nllb-moe", "switch_transformers"]


@pytest.mark.parametrize("name", [*RELU_AND_EXPERTS, "gpt2", "mixtral", "deepseek_v3"])
def test_models_of_the_zoo_give_no_alarm(name: str) -> None:
    from leadline.testing.zoo import ZOO

    model = ZOO[name].build(0).eval()
    inputs = ZOO[name].inputs(model, 1)
    for stack in leadline.anatomy_of(model, inputs).stacks:
        found = Stretches(model, stack, lambda: model(**inputs))
        for layer in range(1, stack.depth + 1):
            with found.running():
                f, x = found.function(layer - 1, layer)
                given = Linearised(f, x)
                assert [cut_off(f, x, given, name, seed=seed) for seed in (0, 1)] == [None, None]


def test_jacobian_says_what_is_cut_off() -> None:
    model, x = _Model("", "detached", "no_grad"), _stream()
    whole = leadline.jacobian(model, x, layer=1, k=1, anatomy=DECLARED).jacobian
    assert whole.remarks == ()
    for layer in (2, 3):
        cut = leadline.jacobian(model, x, layer=layer, k=1, anatomy=DECLARED).jacobian
        assert [r for r in cut.remarks if r.startswith(f"Layer {layer}: autograd's Jacobian")]
    through = leadline.jacobian(model, x, k=1, anatomy=DECLARED).jacobian
    assert [r for r in through.remarks if r.startswith("Sites 0 to 3: autograd's Jacobian")]


@pytest.mark.parametrize("probes", ["jacobian(k=1),lyapunov(k=2)", "lyapunov(k=2)"])
def test_a_record_says_what_is_cut_off_once(probes: str) -> None:
    model, x = _Model("", "detached", "no_grad"), _stream()
    record = leadline.measure(model, x, probes=probes, anatomy=DECLARED, loss="random")
    remarks = record.provenance["linear_maps"]["encoder"]["remarks"]
    assert sorted(r.split(":")[0] for r in remarks) == ["Layer 2", "Layer 3"]
    assert all("those that gradients see" in r for r in remarks)
    whys = _whys(record)
    assert list(whys) == ["finite differences of the block of the encoder, layers 2 to 3"]
    assert "differs from finite differences by" in next(iter(whys.values()))


def test_remarks_survive_being_cut_off(tmp_path: Any) -> None:
    model, x, path = _Model("detached", "", "no_grad"), _stream(), tmp_path / "a.leadline"

    class Cut(Exception):
        pass

    def ask(progress: Any = None, path: Any = path) -> Record:
        return leadline.measure(
            model,
            x,
            probes="stream,jacobian(k=1)",
            anatomy=DECLARED,
            loss="random",
            path=path,
            progress=progress,
        )

    def stop(what: str, done: int, total: int) -> None:
        if "layer 3" in what:
            raise Cut

    with pytest.raises(Cut):
        ask(stop)
    found, whole = ask().provenance, ask(path=None).provenance
    assert len(whole["linear_maps"]["encoder"]["remarks"]) == 2
    for key in ("linear_maps", "coverage"):
        assert found[key] == whole[key]


def test_what_a_closure_remembers_is_held_fixed_and_not_seen() -> None:
    kept: dict[tuple[int, int], Tensor] = {}

    class Remembering(_Branches):
        def forward(self, x: Tensor) -> Tensor:
            if (key := (id(self), len(x))) not in kept:
                kept[key] = self.mlp(torch.tanh(self.up(x))).detach()
            return x + self.attention(x) + kept[key]

    model = _Model("", "")
    model.layers = nn.ModuleList(Remembering() for _ in range(2))
    found = leadline.jacobian(model, _stream(), layer=2, k=1, anatomy=DECLARED).jacobian
    assert found.values[0, 0] == pytest.approx(1.5, rel=1e-5)  # of the attention alone
    assert found.remarks == ()


# --- autocast ------------------------------------------------------------------------------------


def test_jacobians_are_those_of_the_models_own_type_under_autocast() -> None:
    model, ids = _transformer()
    plain = leadline.jacobian(model, ids, layer=2, k=2).jacobian
    grown = leadline.lyapunov(model, ids, k=2).lyapunov
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = leadline.jacobian(model, ids, layer=2, k=2).jacobian
        cast_grown = leadline.lyapunov(model, ids, k=2).lyapunov
        assert torch.is_autocast_enabled("cpu")
    assert cast.values == pytest.approx(plain.values, rel=1e-6)
    assert cast_grown.exponents == pytest.approx(grown.exponents, abs=1e-6)
    assert cast.precision == "float32"
    for told in (cast.remarks, cast_grown.remarks):
        assert told[0].startswith("Autocast was on; for Jacobians it is switched off")
    assert not any("Autocast" in remark for remark in (*plain.remarks, *grown.remarks))


def test_a_record_under_autocast_has_the_same_jacobians_and_says_so() -> None:
    model, ids = _transformer()
    anatomy = leadline.anatomy_of(model, ids)
    plain = leadline.measure(model, ids, probes="jacobian(k=2)", anatomy=anatomy)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = leadline.measure(model, ids, probes="jacobian(k=2)", anatomy=anatomy)
    for one, other in zip(
        plain.select("jacobian.singular"), cast.select("jacobian.singular"), strict=True
    ):
        assert other.value == pytest.approx(one.value, rel=1e-6)
    (remark,) = cast.provenance["linear_maps"]["decoder"]["remarks"]
    assert remark.startswith("Autocast was on")
    assert plain.provenance["linear_maps"]["decoder"]["remarks"] == []


def test_every_name_of_the_module_is_there() -> None:
    assert all(hasattr(checks, name) for name in checks.__all__)
