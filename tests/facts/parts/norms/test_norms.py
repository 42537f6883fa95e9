"""Norms: each against its formula, in the numbers of another library or of mpmath."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from torch import nn

from leadline.errors import RecipeError
from leadline.parts import Transformer
from leadline.parts.norms import NORMS

WIDTH = 12


def _norm(choice: str | dict[str, Any], width: int = WIDTH) -> nn.Module:
    return NORMS.build(choice, width=width)


def _x(dtype: torch.dtype = torch.float64, *, size: float = 3.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return (size * torch.randn(5, WIDTH, generator=generator, dtype=torch.float64) + 1).to(dtype)


def _gains(norm: nn.Module) -> tuple[np.ndarray, np.ndarray]:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in norm.named_parameters():
            if name in ("weight", "bias"):
                parameter.copy_(torch.randn(WIDTH, generator=generator) * 0.5 + 0.25)
    weight = norm.get_parameter("weight").detach().double().numpy()
    bias = dict(norm.named_parameters()).get("bias")
    return weight, np.zeros(WIDTH) if bias is None else bias.detach().double().numpy()


@pytest.mark.parametrize(("choice", "eps"), [("layernorm", 1e-5), ("layernorm(eps=0.5)", 0.5)])
def test_layernorm_centres_and_divides_by_the_standard_deviation(choice: str, eps: float) -> None:
    norm = _norm(choice).double()
    gain, shift = _gains(norm)
    x = _x(size=0.01).numpy() - 1  # small, so that eps is felt
    variance = ((x - x.mean(-1, keepdims=True)) ** 2).sum(-1, keepdims=True) / WIDTH
    expected = gain * (x - x.mean(-1, keepdims=True)) / np.sqrt(variance + eps) + shift
    assert np.allclose(norm(torch.tensor(x)).detach().numpy(), expected, rtol=1e-11, atol=1e-14)


def test_layernorm_starts_with_gain_one_and_shift_zero() -> None:
    norm = _norm("layernorm")
    assert norm.get_parameter("weight").tolist() == [1.0] * WIDTH
    assert norm.get_parameter("bias").tolist() == [0.0] * WIDTH
    assert [name for name, _ in _norm("layernorm(bias=false)").named_parameters()] == ["weight"]


@pytest.mark.parametrize(
    ("choice", "eps", "offset"),
    [
        ("rmsnorm", 1e-6, 0),
        ("rmsnorm(eps=0.5)", 0.5, 0),
        ("rmsnorm(offset=1)", 1e-6, 1),
        ("rmsnorm(offset=0.125)", 1e-6, 0.125),
    ],
)
def test_rmsnorm_divides_by_the_root_of_the_mean_square(
    choice: str, eps: float, offset: float
) -> None:
    norm = _norm(choice).double()
    gain, _ = _gains(norm)
    x = _x(size=0.001).numpy() - 1
    expected = (offset + gain) * x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)
    assert np.allclose(norm(torch.tensor(x)).detach().numpy(), expected, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("offset", [0.0, 1.0, 0.25])
def test_the_gain_of_rmsnorm_starts_at_one_in_all(offset: float) -> None:
    norm = _norm({"name": "rmsnorm", "offset": offset})
    assert norm.get_parameter("weight").tolist() == [1.0 - offset] * WIDTH


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rmsnorm_equals_hugging_faces_to_the_last_digit(dtype: torch.dtype, offset: int) -> None:
    pytest.importorskip("transformers")
    from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
    from transformers.models.olmo2.modeling_olmo2 import Olmo2RMSNorm

    theirs = (GemmaRMSNorm if offset else Olmo2RMSNorm)(WIDTH, eps=1e-6)
    ours = _norm(f"rmsnorm(offset={offset})")
    _gains(ours)
    theirs.load_state_dict(ours.state_dict())
    x = _x(dtype)
    got, expected = ours.to(dtype)(x), theirs.to(dtype)(x)
    assert got.dtype == expected.dtype == dtype
    assert torch.equal(got, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rmsnorm_equals_llamas_but_for_its_second_rounding(dtype: torch.dtype) -> None:
    pytest.importorskip("transformers")
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    theirs, ours = LlamaRMSNorm(WIDTH, eps=1e-6), _norm("rmsnorm")
    _gains(ours)
    theirs.load_state_dict(ours.state_dict())
    x = _x(dtype)
    got, expected = ours.to(dtype)(x).double(), theirs.to(dtype)(x).double()
    unit = {torch.float32: 0.0, torch.bfloat16: torch.finfo(torch.bfloat16).eps}[dtype]
    assert bool(((got - expected).abs() <= unit * expected.abs()).all())


def test_the_gain_of_a_half_precision_norm_is_not_rounded_away() -> None:
    """1 + 2^-9 is no bfloat16; the product with 1.5 is rounded only once."""
    norm = _norm("rmsnorm(offset=1, eps=0)", 2).to(torch.bfloat16)
    with torch.no_grad():
        norm.get_parameter("weight").copy_(torch.tensor([2.0**-9, 2.0**-8]))
    x = torch.tensor([1.0, 1.0], dtype=torch.bfloat16)
    exact = torch.tensor([1 + 2.0**-9, 1 + 2.0**-8], dtype=torch.float64)
    assert torch.equal(norm(x), exact.to(torch.bfloat16))
    wide = norm(torch.ones(2, dtype=torch.float32))
    assert wide.dtype == torch.float32
    assert torch.equal(wide.double(), exact)


@pytest.mark.parametrize("choice", ["layernorm", "rmsnorm", "rmsnorm(offset=1)", "dyt", "derf"])
def test_a_norm_gives_back_the_number_type_that_it_took(choice: str) -> None:
    norm = _norm(choice)
    _gains(norm)
    exact = norm.double()(_x())
    for dtype in (torch.float32, torch.bfloat16):
        norm = norm.to(dtype)
        assert norm(_x(dtype)).dtype == dtype
    norm = norm.float()  # weights in float32, the stream in bfloat16: what autocast makes
    with torch.autocast("cpu", torch.bfloat16):
        half, full = norm(_x(torch.bfloat16)), norm(_x(torch.float32))
    assert (half.dtype, full.dtype) == (torch.bfloat16, torch.float32)
    assert torch.allclose(half.double(), exact, rtol=0.02, atol=0.05)


@pytest.mark.parametrize("alpha", [0.5, 0.2])
def test_dyt_is_a_tanh_with_one_slope(alpha: float) -> None:
    norm = _norm("dyt" if alpha == 0.5 else f"dyt(alpha={alpha})").double()
    assert norm.get_parameter("alpha").item() == pytest.approx(alpha, rel=1e-7)
    gain, shift = _gains(norm)
    slope = norm.get_parameter("alpha").item()
    got, x = norm(_x()), _x()
    for i in range(5):
        for j in range(WIDTH):
            curve = mpmath.tanh(mpmath.mpf(slope) * float(x[i, j]))
            assert got[i, j].item() == pytest.approx(float(gain[j] * curve + shift[j]), rel=1e-12)


@pytest.mark.parametrize(
    ("choice", "alpha", "start"),
    [("derf", 0.5, 0.0), ("derf(alpha=0.25, shift=-0.5)", 0.25, -0.5)],
)
def test_derf_is_an_error_function_with_one_slope_and_one_shift(
    choice: str, alpha: float, start: float
) -> None:
    norm = _norm(choice).double()
    assert norm.get_parameter("alpha").item() == alpha
    assert norm.get_parameter("shift").item() == start
    gain, shift = _gains(norm)
    got, x = norm(_x()), _x()
    for i in range(5):
        for j in range(WIDTH):
            curve = mpmath.erf(mpmath.mpf(alpha) * float(x[i, j]) + start)
            assert got[i, j].item() == pytest.approx(float(gain[j] * curve + shift[j]), rel=1e-12)


@pytest.mark.parametrize(("choice", "learned"), [("dyt", 2 * 12 + 1), ("derf", 2 * 12 + 2)])
def test_curves_start_with_gain_one_and_shift_zero(choice: str, learned: int) -> None:
    norm = _norm(choice)
    assert norm.get_parameter("weight").tolist() == [1.0] * WIDTH
    assert norm.get_parameter("bias").tolist() == [0.0] * WIDTH
    assert sum(p.numel() for p in norm.parameters()) == learned
    assert all(p.requires_grad for p in norm.parameters())
    assert norm.get_parameter("alpha").shape == ()


@pytest.mark.parametrize("choice", ["dyt", "derf"])
def test_curves_keep_tokens_and_features_apart(choice: str) -> None:
    norm, x = _norm(choice).double(), _x()
    other = x.clone()
    other[2, 3] += 1
    moved = (norm(other) != norm(x)).nonzero().tolist()
    assert moved == [[2, 3]]
    assert float(norm(100 * x).detach().abs().max()) <= 1 + 1e-12  # bounded by the gain


def test_none_is_no_norm_anywhere() -> None:
    assert _norm_or_none("none") is None
    model = Transformer(depth=2, width=8, heads=2, norm="none", placement="sandwich")
    assert model.norm is None
    assert not any("norm" in name for name, _ in model.named_parameters())


def _norm_or_none(choice: str) -> nn.Module | None:
    return NORMS.build(choice, width=4)


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        ("layernorm(eps=-1)", "The option eps of layernorm is -1; give a number from 0 on."),
        ("rmsnorm(eps=small)", "The option eps of rmsnorm is 'small'; give a number from 0 on."),
        ("layernorm(bias=1)", "The option bias of layernorm is 1; give true or false."),
        ("rmsnorm(offset=one)", "The option offset of rmsnorm is 'one'; give a number."),
        ("dyt(alpha=0)", "The option alpha of dyt is 0; give a number above 0."),
        ("derf(alpha=-0.5)", "The option alpha of derf is -0.5; give a number above 0."),
        ("derf(alpha=0)", "The option alpha of derf is 0; give a number above 0."),
        ("derf(shift=true)", "The option shift of derf is True; give a number."),
    ],
)
def test_an_impossible_option_of_a_norm_is_refused(choice: str, sentence: str) -> None:
    with pytest.raises(RecipeError) as caught:
        _norm(choice)
    assert str(caught.value) == sentence


def test_small_options_of_a_norm_are_options() -> None:
    assert _norm("layernorm(eps=0)", 2)(torch.tensor([1.0, -1.0])).tolist() == [1.0, -1.0]
    for choice in ("dyt(alpha=0.01)", "derf(alpha=0.01)"):
        assert _norm(choice).get_parameter("alpha").item() == pytest.approx(0.01)


def test_norms_say_their_numbers() -> None:
    assert repr(_norm("rmsnorm(offset=1)")) == "RMSNorm(12, eps=1e-06, offset=1)"
    assert repr(_norm("dyt")) == "DynamicTanh(12)"
    assert repr(_norm("derf")) == "DynamicErf(12)"


def test_rmsnorm_leaves_a_unit_vector_of_equal_features_alone() -> None:
    assert _norm("rmsnorm(eps=0)", 4)(torch.full((4,), 1.0)).tolist() == [1.0] * 4
    root = math.sqrt(4 / 3)
    got = _norm("rmsnorm(eps=0)", 4).double()(torch.tensor([0.0, 1, 1, 1]).double())
    assert got.tolist() == pytest.approx([0, root, root, root], rel=1e-15)
