"""Split tokens: every rule against the plain formula, at ordinary and at extreme sizes."""

from __future__ import annotations

import math

import pytest
import torch
from mpmath import mp, mpf
from torch.nn import functional as F

from leadline.errors import InputError
from leadline.instruments.collapse.split.rules import activations as split_activations
from leadline.instruments.collapse.split.rules import arithmetic as split_arithmetic
from leadline.instruments.collapse.split.rules import attention as split_attention
from leadline.instruments.collapse.split.rules import norms as split_norms
from leadline.instruments.collapse.split.scaled import REACH, Scaled, added, scaled, shifted, times
from leadline.instruments.collapse.split.split import (
    LAST_DIGIT,
    RUNS,
    Rounding,
    Split,
    split_tokens,
)

assert split_attention and split_activations and split_norms and split_arithmetic


def tokens(seed: int = 0, count: int = 5, width: int = 6) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, width, generator=generator, dtype=torch.float64)


def split(x: torch.Tensor, *, first: bool = False) -> Split:
    return split_tokens(x, first=first, rounding=Rounding())


def whole(x: Split) -> torch.Tensor:
    return x.base.at(0)[0] + x.rest.at(0)[0]


def close(found: Split, expected: torch.Tensor, rel: float = 1e-12) -> None:
    got = whole(found)
    assert got.shape == expected.shape
    assert float((got - expected).abs().max()) <= rel * float(expected.abs().max())


def vast(x: torch.Tensor, base: int, rest: int) -> Split:
    """The tokens of x with base and rest moved by powers of two."""
    made = split(x)
    return Split(
        Scaled(made.base.values, (made.base.exponent or 0) + base),
        Scaled(made.rest.values, (made.rest.exponent or 0) + rest),
        made.axis,
        made.first,
        made.rounding,
    )


# --- scaled --------------------------------------------------------------------------------------


def test_a_scaled_number_is_its_values_times_two_to_the_exponent():
    number = scaled(torch.tensor([3e40, -1e38], dtype=torch.float64))
    assert number.exponent != 0 and float(number.values.abs().max()) < 1.0
    assert number.at(0).tolist() == [3e40, -1e38]


def test_numbers_near_one_keep_their_exponent():
    assert scaled(torch.tensor([200.0])).exponent == 0
    assert scaled(torch.tensor([0.002])).exponent == 0
    assert scaled(torch.tensor([300.0])).exponent == 9
    assert scaled(torch.tensor([0.001])).exponent == -9


def test_zero_has_no_exponent_and_adds_nothing():
    zero = scaled(torch.zeros(2, dtype=torch.float64))
    one = scaled(torch.tensor([1.0, 2.0], dtype=torch.float64), -5000)
    assert zero.is_zero
    assert added(zero, one).exponent == -5000
    assert added(one, zero).values.tolist() == [1.0, 2.0]
    assert times(zero, one).is_zero
    assert added(zero, zero).is_zero


def test_sums_of_any_size_keep_the_larger_one():
    large = scaled(torch.tensor([1.0], dtype=torch.float64), 10**19)
    small = scaled(torch.tensor([1.0], dtype=torch.float64), -(10**19))
    assert added(large, small).exponent == 10**19
    assert added(small, large).values.tolist() == [1.0]
    assert times(large, small).exponent == 0


@pytest.mark.parametrize("shift", [0, 1, -1, 900, -900, 1023, -1030, REACH, -REACH, 10**20])
def test_shifts_are_powers_of_two(shift):
    value = float(shifted(torch.tensor(1.0, dtype=torch.float64), shift))
    expected = math.inf if shift > 1023 else math.ldexp(1.0, max(shift, -2000))
    assert value == expected


def test_what_is_not_finite_is_refused():
    with pytest.raises(InputError, match="not finite"):
        scaled(torch.tensor([math.inf]))


# --- splitting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [False, True])
def test_tokens_are_split_without_loss(first):
    x = tokens()
    found = split(x, first=first)
    close(found, x, 1e-16)
    reference = x[0] if first else x.mean(0)
    assert found.base.at(0)[0, 0] == pytest.approx(reference, rel=1e-15)
    assert found.shape == (RUNS, 5, 6)


def test_tokens_that_differ_in_the_last_digits_keep_their_difference():
    x = torch.ones(3, 2, dtype=torch.float64)
    x[1, 0] += 2.0**-50
    found = split(x)
    apart = found.rest.at(0)[0]
    assert apart[:, 0].tolist() == pytest.approx([-(2.0**-50) / 3, 2.0**-49 / 3, -(2.0**-50) / 3])


def test_the_reference_of_a_causal_network_has_no_rest():
    assert split(tokens(), first=True).rest.at(0)[0, 0].abs().max() == 0.0


def test_the_residual_is_that_of_the_tokens_minus_their_mean():
    x = tokens()
    for first in (False, True):
        sizes, exponent = split(x, first=first).residual()
        assert exponent is not None
        assert float(sizes[0]) * 2.0**exponent == pytest.approx(float((x - x.mean(0)).norm()))
        sizes, exponent = split(x, first=first).norm()
        assert float(sizes[0]) * 2.0**exponent == pytest.approx(float(x.norm()))


# --- rounding ------------------------------------------------------------------------------------


def test_all_runs_but_the_first_are_rounded_once_more():
    number = scaled(torch.ones(RUNS, 4, 4, dtype=torch.float64))
    rounded = Rounding()(number).values
    assert torch.equal(rounded[0], torch.ones(4, 4).double())
    off = (rounded[1:] - 1.0).abs()
    assert float(off.max()) == 2 * LAST_DIGIT and float(off.min()) == 2 * LAST_DIGIT
    assert torch.finfo(torch.float64).eps / 2 == LAST_DIGIT


def test_the_drift_is_sixteen_times_the_largest_distance_of_a_run():
    rounding = Rounding()
    sizes = torch.tensor([1.0, 1.0 + 1e-10, 1.0 - 3e-10], dtype=torch.float64)
    assert rounding.drift(sizes) == pytest.approx(16 * 3e-10, rel=1e-5)
    rounding.magnified = 8.0
    assert rounding.drift(sizes) == pytest.approx(8 * 16 * 3e-10, rel=1e-5)


def test_runs_that_drift_apart_are_drawn_closer_and_the_estimate_remembers():
    x = split(tokens())
    values = x.rest.values.clone()
    values[1] *= 1.0 + 1e-4
    apart = Split(x.base, Scaled(values, x.rest.exponent), 1, False, x.rounding)
    before = apart.rounding.drift(apart.residual()[0])
    drawn = apart.gathered()
    assert drawn.rounding.magnified == 2.0**20
    assert drawn.rounding.drift(drawn.residual()[0]) == pytest.approx(before, rel=1e-3)
    assert torch.equal(drawn.rest.values[0], values[0])
    assert drawn.gathered() is drawn


def test_a_zero_that_other_runs_do_not_share_is_no_zero():
    rounding = Rounding()
    assert rounding.drift(torch.zeros(3)) == 0.0
    assert rounding.drift(torch.tensor([0.0, 1e-30, 0.0])) == math.inf


# --- rules at ordinary sizes -----------------------------------------------------------------------


ACTIVATIONS = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "erf": torch.erf,
}


@pytest.mark.parametrize("scale", [1e-6, 0.3, 1.0, 30.0])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_agree_with_torch(name, first, scale):
    x = scale * tokens()
    close(ACTIVATIONS[name](split(x, first=first)), ACTIVATIONS[name](x))


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("eps", [1e-5, 0.0])
@pytest.mark.parametrize("first", [False, True])
def test_norms_agree_with_torch(first, eps, scale):
    x, weight, bias = scale * tokens(), tokens(1)[0], tokens(2)[0]
    close(
        F.layer_norm(split(x, first=first), (6,), weight, bias, eps),
        F.layer_norm(x, (6,), weight, bias, eps),
    )
    close(
        F.rms_norm(split(x, first=first), (6,), weight, eps),
        F.rms_norm(x, (6,), weight, eps),
    )


def test_norms_of_tokens_around_zero_are_those_of_the_tokens():
    """The mean token is zero, so nothing can be counted from it."""
    x = tokens(count=3)
    x = torch.cat((x, -x))
    close(F.rms_norm(split(x), (6,), None, 0.0), F.rms_norm(x, (6,), None, 0.0))
    close(F.layer_norm(split(x), (6,), None, None, 0.0), F.layer_norm(x, (6,), None, None, 0.0))


def test_a_norm_without_eps_refuses_zeros():
    x = torch.zeros(2, 4, dtype=torch.float64)
    x[1] = 1.0
    with pytest.raises(InputError, match="eps"):
        F.rms_norm(split(x, first=True), (4,), None, 0.0)


@pytest.mark.parametrize("first", [False, True])
def test_sums_and_products_agree_with_torch(first):
    x, y, v = tokens(), tokens(1), tokens(2)[0]
    a, b = split(x, first=first), split(y, first=first)
    close(a + b, x + y)
    close(a - b, x - y)
    close(a * b, x * y)
    close(2.0 * a, 2.0 * x)
    close(a * v, x * v)
    close(v * a, x * v)
    close(a + v, x + v)
    close(1.0 - a, 1.0 - x)
    close(a / 3.0, x / 3.0)
    close(-a, -x)
    close(torch.add(a, b, alpha=0.5), x + 0.5 * y)
    close(torch.addcmul(a, b, a), x + y * x)
    close(torch.lerp(a, b, 0.25), torch.lerp(x, y, 0.25))
    close(a * y, x * y)  # numbers of their own for every token
    close(a + y, x + y)


@pytest.mark.parametrize("first", [False, True])
def test_shapes_and_linear_maps_agree_with_torch(first):
    x, weight, bias = tokens(), tokens(3, 4, 6), tokens(4, 1, 4)[0]
    a = split(x, first=first)
    close(F.linear(a, weight, bias), F.linear(x, weight, bias))
    one, two = a.chunk(2, -1)
    close(torch.cat((-two, one), -1), torch.cat((-x[:, 3:], x[:, :3]), -1))
    parts = a.split([1, 2, 3], -1)
    assert [p.shape[-1] for p in parts] == [1, 2, 3]
    close(parts[2], x[:, 3:])
    close(a[..., 1::2], x[:, 1::2])
    close(torch.stack((a[..., 0::2], a[..., 1::2]), -1).flatten(-2), x)
    viewed = a.view(RUNS, 5, 2, 3).transpose(1, 2)
    assert viewed.axis == 2 and viewed.base.values.shape == (RUNS, 2, 1, 3)
    close(viewed.transpose(1, 2).reshape(RUNS, 5, 6), x)


def test_what_moves_the_tokens_is_refused():
    a = split(tokens())
    for wrong in (
        lambda: a.view(RUNS, 30),
        lambda: a.flatten(1),
        lambda: a.chunk(5, 1),
        lambda: a[:, 0],
        lambda: torch.stack((a, a), 1),
        lambda: torch.cat((a, torch.ones(RUNS, 5, 1)), -1),
    ):
        with pytest.raises(InputError, match=r"followed"):
            wrong()


def test_functions_without_a_rule_are_refused_by_name():
    a = split(tokens())
    with pytest.raises(InputError, match="'cumsum' cannot be followed"):
        torch.cumsum(a, 1)
    with pytest.raises(InputError, match="'cumsum' cannot be followed"):
        a.cumsum(1)
    with pytest.raises(AttributeError, match="no 'nonsense'"):
        a.nonsense()


def test_dropout_is_refused_while_training():
    with pytest.raises(InputError, match="eval"):
        F.dropout(split(tokens()), 0.5, True)


# --- attention -------------------------------------------------------------------------------------


def heads(seed: int, *, first: bool, count: int = 2, scale: float = 1.0):
    x = scale * tokens(seed, 5, 6)
    plain = x.view(1, 5, count, -1).transpose(1, 2)
    return split(x, first=first).view(RUNS, 5, count, 6 // count).transpose(1, 2), plain


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_agrees_with_torch(causal, scale):
    (q, q0), (k, k0), (v, v0) = (heads(s, first=causal, scale=scale) for s in (1, 2, 3))
    found = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=0.7)
    expected = F.scaled_dot_product_attention(q0, k0, v0, is_causal=causal, scale=0.7)
    close(found, expected[0], 1e-11)


def test_grouped_keys_serve_several_heads():
    x, y, z = tokens(1, 5, 12), tokens(2, 5, 6), tokens(3, 5, 6)

    def apart(rows: torch.Tensor, count: int):
        shaped = split(rows).view(RUNS, 5, count, 3).transpose(1, 2)
        return shaped, rows.view(1, 5, count, 3).transpose(1, 2)

    (q, q0), (k, k0), (v, v0) = apart(x, 4), apart(y, 2), apart(z, 2)
    found = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    expected = F.scaled_dot_product_attention(q0, k0, v0, enable_gqa=True)
    close(found, expected[0])


def test_each_head_is_done_by_the_form_that_suits_it():
    """The logits of the middle head span thousands, those of the others next to nothing."""
    x = tokens(1, 5, 6)
    sizes = torch.tensor([1e-3, 1e-3, 80.0, 80.0, 1e-3, 1e-3], dtype=torch.float64)
    q = split(x * sizes).view(RUNS, 5, 3, 2).transpose(1, 2)
    v = split(tokens(2, 5, 6)).view(RUNS, 5, 3, 2).transpose(1, 2)
    q0 = (x * sizes).view(1, 5, 3, 2).transpose(1, 2)
    v0 = tokens(2, 5, 6).view(1, 5, 3, 2).transpose(1, 2)
    found = F.scaled_dot_product_attention(q, q, v)
    expected = F.scaled_dot_product_attention(q0, q0, v0)
    close(found, expected[0], 1e-10)
    # The faint heads keep the digits of their small differences.
    for head in (0, 2):
        alone = F.scaled_dot_product_attention(
            *(one.reshaped(lambda t, h=head: t[:, h : h + 1]) for one in (q, q, v))
        )
        mine = found.rest.at(0)[0, head]
        assert mine == pytest.approx(alone.rest.at(0)[0, 0], rel=1e-11)


def test_logits_of_both_parts_add_up_where_a_head_is_sharp():
    """The reference's part of the logits and the rest's: the mean token is far from zero."""
    x = tokens(1, 5, 4) + 2.0
    sizes = torch.tensor([30.0, 30.0, 1e-2, 1e-2], dtype=torch.float64)
    q = split(x * sizes).view(RUNS, 5, 2, 2).transpose(1, 2)
    q0 = (x * sizes).view(1, 5, 2, 2).transpose(1, 2)
    found = F.scaled_dot_product_attention(q, q, q)
    close(found, F.scaled_dot_product_attention(q0, q0, q0)[0], 1e-9)


def test_masks_are_refused():
    q, _ = heads(1, first=False)
    with pytest.raises(InputError, match="padding"):
        F.scaled_dot_product_attention(q, q, q, attn_mask=torch.ones(5, 5).bool())
    with pytest.raises(InputError, match="Causal and bidirectional"):
        F.scaled_dot_product_attention(q, q, q, is_causal=True)


# --- extreme sizes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gelu", "silu", "tanh", "erf", "relu"])
@pytest.mark.parametrize("base", [-1060, -3000])
def test_activations_of_tiny_values_are_linear(name, base):
    """f(x) = f'(0) x up to the square of x, also where x is below the smallest float64."""
    slope = {"gelu": 0.5, "silu": 0.5, "tanh": 1.0, "erf": 2 / math.sqrt(math.pi)}.get(name)
    x = vast(tokens().abs() + 1.0, base, base - 40)
    y = ACTIVATIONS[name](x)
    assert y.base.exponent is not None and y.rest.exponent is not None
    factor = 1.0 if slope is None else slope
    moved = y.base.values[0] * 2.0 ** (y.base.exponent - (x.base.exponent or 0))
    assert moved == pytest.approx(factor * x.base.values[0], rel=1e-14)
    moved = y.rest.values[0] * 2.0 ** (y.rest.exponent - (x.rest.exponent or 0))
    assert moved == pytest.approx(factor * x.rest.values[0], rel=1e-13)


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "silu"])
def test_activations_of_huge_values_are_the_identity_or_zero(name):
    x = vast(tokens(), 2000, -3000)
    y = ACTIVATIONS[name](x)
    positive = (x.base.values[0] > 0).double()
    assert torch.equal(y.base.values[0], x.base.values[0] * positive)
    assert y.base.exponent == x.base.exponent
    assert y.rest.at(y.rest.exponent or 0)[0] == pytest.approx(
        (x.rest.values * positive)[0] - (x.rest.values * positive)[0].mean(0), abs=1e-15
    )


@pytest.mark.parametrize("rest", [-100, -600, -1060, -5000, -(10**18)])
def test_norms_of_nearly_equal_tokens_are_their_derivative(rest):
    """d LN(x) = (r - z (z.r) / d) / sigma without eps, z the normed reference: in mpmath."""
    mp.dps = 60
    x = vast(tokens(), 0, rest)
    y = F.layer_norm(x, (6,), None, None, 0.0)
    base = [mpf(v) for v in (x.base.values[0, 0] * 2.0 ** (x.base.exponent or 0)).tolist()]
    mean = mp.fsum(base) / 6
    c = [v - mean for v in base]
    sigma = mp.sqrt(mp.fsum(v * v for v in c) / 6)
    for row in range(5):
        r = [mpf(v) for v in x.rest.values[0, row].tolist()]
        shift = mp.fsum(r) / 6
        r = [v - shift for v in r]
        dot = mp.fsum(a * b for a, b in zip(c, r, strict=True)) / (6 * sigma**2)
        expected = [float((a - b * dot) / sigma) for a, b in zip(r, c, strict=True)]
        factor = (y.rest.exponent or 0) - (x.rest.exponent or 0)
        got = (y.rest.values[0, row] * 2.0**factor).tolist()
        assert got == pytest.approx(expected, rel=1e-12, abs=1e-12)
