"""How sharp the fit is: what it tells apart, what it refuses, what it calls one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import leadline
from leadline.anatomy import Anatomy, Balance, read_anatomy, refuse_imbalance
from leadline.anatomy.find.fit import _snapped, fit_block  # pyright: ignore
from leadline.anatomy.find.replay import replay_block
from leadline.errors import AnatomyError, BalanceError
from leadline.testing.tiny import MeanAttention

WIDTH = 16
Tensor = torch.Tensor


class _Block(nn.Module):
    """Attention that moves the mean token, an MLP, two norms, and a formula that joins them."""

    def __init__(self, formula: Callable[[_Block, Tensor], Tensor]) -> None:
        super().__init__()
        self.formula = formula
        self.attention = MeanAttention(0.6)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.rms = nn.RMSNorm(WIDTH, eps=1e-6)
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, WIDTH))
        self.extra = nn.Linear(WIDTH, WIDTH)
        self.more = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.formula(self, x)


class _Stack(nn.Module):
    def __init__(self, formula: Callable[[_Block, Tensor], Tensor], depth: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(_Block(formula) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def _stream(seed: int, tokens: int = 7) -> Tensor:
    return torch.randn(3, tokens, WIDTH, generator=torch.Generator().manual_seed(seed))


def _read(formula: Callable[[_Block, Tensor], Tensor], tokens: int = 7) -> Anatomy:
    model = _Stack(formula).eval()
    fit, fresh = _stream(0, tokens), _stream(1, tokens)
    return read_anatomy(model, lambda: model(fit), lambda: model(fresh))


def _sublayers(formula: Callable[[_Block, Tensor], Tensor]) -> list[tuple[str, object, float]]:
    block = _read(formula).stacks[0].blocks[0]
    return [(s.module.removeprefix("layers.0."), s.gain, s.keep) for s in block.sublayers]


def _pre(b: _Block, x: Tensor) -> Tensor:
    x = x + b.attention(b.norm1(x))
    return x + b.mlp(b.norm2(x))


# --- factors -----------------------------------------------------------------------------------


def test_a_factor_within_a_hundred_thousandth_of_one_is_one_and_no_other() -> None:
    assert _snapped(1 + 9e-6) == _snapped(1 - 9e-6) == 1.0
    assert _snapped(1 + 2e-5) == pytest.approx(1.00002, rel=1e-9)
    assert _snapped(0.22000000476) == 0.220000005
    assert _snapped(0.22000000476, 7) == 0.22


@pytest.mark.parametrize(("gain", "keep"), [(1.005, 1.0), (1.0, 0.995), (0.02, 0.3)])
def test_factors_close_to_one_are_not_taken_for_one(gain: float, keep: float) -> None:
    def formula(b: _Block, x: Tensor) -> Tensor:
        x = keep * x + gain * b.attention(b.norm1(x))
        return keep * x + gain * b.mlp(b.norm2(x))

    for _, found_gain, found_keep in _sublayers(formula):
        assert found_gain == pytest.approx(gain, rel=1e-4)
        assert found_keep == pytest.approx(keep, rel=1e-5)


def test_the_factors_of_both_writes_are_told_apart() -> None:
    def formula(b: _Block, x: Tensor) -> Tensor:
        x = 0.9 * x + 0.5 * b.attention(b.norm1(x))
        return 0.7 * x + 0.25 * b.mlp(b.norm2(x))

    (_, first, kept), (_, second, kept_again) = _sublayers(formula)
    assert (first, second) == pytest.approx((0.5, 0.25), rel=1e-5)
    assert (kept, kept_again) == pytest.approx((0.9, 0.7), rel=1e-5)


def test_a_block_that_keeps_almost_nothing_of_its_stream_is_refused() -> None:
    def formula(b: _Block, x: Tensor) -> Tensor:
        x = 0.01 * x + b.attention(b.norm1(x))
        return x + b.mlp(b.norm2(x))

    with pytest.raises(AnatomyError):
        _read(formula)


# --- how many writes ---------------------------------------------------------------------------


def test_three_and_four_writes_are_found() -> None:
    def three(b: _Block, x: Tensor) -> Tensor:
        x = x + b.attention(x)
        x = x + b.mlp(x)
        return x + b.extra(x)

    def four(b: _Block, x: Tensor) -> Tensor:
        return three(b, x) + b.more(x)

    assert [m for m, *_ in _sublayers(three)] == ["attention", "mlp", "extra"]
    assert {m for m, *_ in _sublayers(four)} == {"attention", "mlp", "extra", "more"}


def test_two_writes_between_two_norms_are_found() -> None:
    def formula(b: _Block, x: Tensor) -> Tensor:
        x = b.norm1(x + b.attention(x))
        return b.norm2(x + b.mlp(x) + b.extra(x))

    assert [m for m, *_ in _sublayers(formula)] == ["attention", "mlp", "extra"]


# --- which module ------------------------------------------------------------------------------


def test_of_a_small_output_and_its_norm_the_one_that_fits_better_is_read() -> None:
    # Far below sqrt(eps) of the norm, norm(u) is 1000 u up to some units of rounding: both fit.
    def formula(b: _Block, x: Tensor) -> Tensor:
        x = x + b.attention(x)
        return x + b.rms(b.extra(1e-5 * x))

    torch.manual_seed(0)
    model = _Stack(formula).eval()
    for layer in model.layers:
        nn.init.zeros_(layer.extra.bias)  # pyright: ignore
    fit, fresh = _stream(0), _stream(1)
    anatomy = read_anatomy(model, lambda: model(fit), lambda: model(fresh))
    last = anatomy.stacks[0].blocks[0].sublayers[-1]
    assert (last.module, last.gain) == ("layers.0.rms", 1.0)


def test_the_parameter_of_a_module_that_was_called_is_no_gain() -> None:
    # norm2.weight scales inside norm2; what norm2 returned is the update.
    def formula(b: _Block, x: Tensor) -> Tensor:
        x = x + b.attention(x)
        return x + b.norm2(b.mlp(x))

    assert _sublayers(formula)[1] == ("norm2", 1.0, 1.0)


def test_one_module_does_not_make_two_writes() -> None:
    # u + scale u could be read as two updates of one call.
    def formula(b: _Block, x: Tensor) -> Tensor:
        x = x + b.attention(b.norm1(x))
        u = b.mlp(b.norm2(x))
        return x + (u + b.scale * u)

    with pytest.raises(AnatomyError, match="is not its input plus outputs of its modules"):
        _read(formula)


# --- how sharp ---------------------------------------------------------------------------------


def _fitted(formula: Callable[[_Block, Tensor], Tensor], tokens: int = 7) -> bool:
    torch.manual_seed(0)
    block, x = _Block(formula).eval(), _stream(0, tokens)
    return fit_block(replay_block("block", block, ((x,), {}), x.shape)) is not None


def test_what_no_module_returned_is_seen_above_a_few_units_of_rounding() -> None:
    def off(size: float) -> Callable[[_Block, Tensor], Tensor]:
        return lambda b, x: _pre(b, x) + size * torch.linspace(-1, 1, WIDTH)

    assert _fitted(_pre)
    assert not _fitted(off(1e-4))
    assert not _fitted(off(2e-5))


def test_one_wrong_token_of_two_hundred_spoils_the_fit() -> None:
    def spoilt(b: _Block, x: Tensor) -> Tensor:
        y = _pre(b, x)
        wrong = torch.zeros_like(y)
        wrong[1, 41] = 1e-2
        return y + wrong

    assert _fitted(_pre, tokens=80)
    assert not _fitted(spoilt, tokens=80)


# --- the verdict -------------------------------------------------------------------------------


def _balance(eps: float, layers: int = 2) -> Balance:
    return Balance(eps=eps, stack="encoder", layer=2, dtype="float32", layers=layers)


def test_four_units_of_rounding_are_allowed_and_no_more() -> None:
    model, anatomy = _Stack(_pre).eval(), _read(_pre)
    refuse_imbalance(model, anatomy, _balance(4.0))
    with pytest.raises(BalanceError, match=r"encoder layer 2 \('layers\.1'\).*at most 4"):
        refuse_imbalance(model, anatomy, _balance(4.1))


def test_a_miss_without_a_diagnosis_says_how_to_declare() -> None:
    model, anatomy, x = _Stack(_pre).eval(), _read(_pre), _stream(0)
    with pytest.raises(BalanceError) as caught:
        refuse_imbalance(model, anatomy, _balance(1e6), lambda: model(x))
    message = str(caught.value)
    assert "leadline.declare(" in message and "--declare" in message
    assert "eval" not in message


def test_a_miss_of_a_few_units_more_is_answered_with_a_wider_type() -> None:
    model, anatomy, x = _Stack(_pre).eval(), _read(_pre), _stream(0)
    with pytest.raises(BalanceError, match=r"model\.double\(\) or --dtype float64"):
        refuse_imbalance(model, anatomy, _balance(9.0), lambda: model(x))


def test_a_stream_that_is_finite_nowhere_cannot_be_judged() -> None:
    with pytest.raises(AnatomyError, match="nothing can be judged"):
        refuse_imbalance(_Stack(_pre), _read(_pre), _balance(float("nan"), layers=0))


def test_what_would_balance_is_said_for_the_layer_that_missed() -> None:
    model, x = _Stack(_pre, depth=3).eval(), _stream(0)
    # Only the second layer is declared wrongly: its norm for its MLP.
    anatomy = leadline.anatomy_of(model, x)
    from dataclasses import replace

    (stack,) = anatomy.stacks
    blocks = list(stack.blocks)
    first, second = blocks[1].sublayers
    blocks[1] = replace(blocks[1], sublayers=(first, replace(second, module="layers.1.norm2")))
    wrong = replace(anatomy, stacks=(replace(stack, blocks=tuple(blocks)),), source="user")
    with pytest.raises(BalanceError) as caught:
        leadline.anatomy_of(model, x, anatomy=replace(wrong, balance=None))
    assert "These modules would balance: layers.1.attention, layers.1.mlp." in str(caught.value)
