"""Residuals far below rounding, against a naive computation with 3,000 digits."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from mpmath import mp, mpf

from leadline import Transformer, collapse, collapse_weights
from tests.agreement import mp_transformer as naive

DIGITS = 3000
NORMS = (
    ("none", "none"),
    ("layernorm", "pre"),
    ("layernorm", "post"),
    ("rmsnorm", "pre"),
    ("rmsnorm", "post"),
)
OPTIONS = list(
    itertools.product(
        (1, 2), (False, True), NORMS, ("none", "relu", "gelu"), ("none", "identity"), (False, True)
    )
)
"""Heads, causal, norm and its place, MLP, skip, biases: all of them."""


@pytest.fixture(autouse=True)
def _many_digits():
    before, mp.dps = mp.dps, DIGITS
    yield
    mp.dps = before


def network(option, depth: int, *, hidden: int = 6) -> Transformer:
    heads, causal, (norm, placement), mlp, connection, bias = option
    flags = f"causal={str(causal).lower()}, bias={str(bias).lower()}"
    model = Transformer(
        depth=depth,
        width=4,
        heads=heads,
        attention=f"multihead({flags})",
        mlp=mlp if mlp == "none" else f"{mlp}(hidden={hidden}, bias={str(bias).lower()})",
        norm=norm,
        placement=placement,
        connection=connection,
        embedding="none",
        positions="none",
        head="none",
        init="xavier",
    ).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.add_(0.3 * drawn)
    return model


def tokens(count: int = 4, width: int = 4, seed: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, width, generator=generator, dtype=torch.float64)


def nearly_equal_tokens() -> torch.Tensor:
    """Equal in two features, different by 1e-150 in the two others, which are otherwise 0."""
    x = tokens()
    x[:, :2] = x[0, :2].clone()
    x[:, 2:] *= 1e-150
    return x


def agree(model: Transformer, stream: torch.Tensor) -> float:
    found = collapse(model, stream).collapse
    errors = naive.relative_errors(found, naive.residuals(model, stream))
    assert max(errors) < 1e-10
    for error, estimate in zip(errors, found.error, strict=True):
        assert error <= estimate
    return float(found.log10_residual[-1])


def _shown(option) -> str:
    return "-".join(str(o if not isinstance(o, tuple) else "/".join(o)) for o in option)


QUICK = [option for i, option in enumerate(OPTIONS) if option[3] != "gelu" and i % 3 == 0]


@pytest.mark.parametrize("option", QUICK, ids=_shown)
def test_residuals_of_networks_without_gelu_are_right(option):
    agree(network(option, 4), tokens())


@pytest.mark.slow
def test_residuals_of_every_combination_of_options_are_right():
    for option in OPTIONS:
        slow = option[3] == "gelu"  # the error function of 3,000 digits
        # Sixteen units: with one live ReLU and no bias tokens differ in length alone (see below).
        agree(network(option, 3 if slow else 5, hidden=3 if slow else 16), tokens())
        agree(network(option, 1 if slow else 2, hidden=3 if slow else 6), nearly_equal_tokens())


def test_a_norm_that_hides_the_difference_costs_digits_and_the_estimate_says_so():
    """With one live ReLU tokens differ in length only, which RMSNorm takes away up to its eps."""
    option = (1, False, ("rmsnorm", "pre"), "relu", "none", False)
    model = network(option, 3, hidden=3)
    found = collapse(model, tokens()).collapse
    errors = naive.relative_errors(found, naive.residuals(model, tokens()))
    assert max(errors) > 1e-7
    for error, estimate in zip(errors, found.error, strict=True):
        assert error <= estimate


@pytest.mark.parametrize("connection", ["none", "identity"])
@pytest.mark.parametrize("causal", [False, True])
def test_gelu_networks_are_right(causal, connection):
    mp.dps = 700
    option = (2, causal, ("layernorm", "pre"), "gelu", connection, True)
    agree(network(option, 1, hidden=3), nearly_equal_tokens())


@pytest.mark.parametrize("mlp", ["gelu_tanh", "silu", "swiglu", "geglu"])
def test_other_activations_and_gates_are_right(mlp):
    mp.dps = 300
    option = (2, False, ("rmsnorm", "pre"), mlp, "none", True)
    agree(network(option, 3, hidden=3), tokens())


def test_a_residual_of_ten_to_the_minus_eight_hundred_is_right_to_ten_digits():
    option = (1, False, ("none", "none"), "none", "none", False)
    reached = agree(network(option, 7), tokens())
    assert reached < -800


def test_a_skip_keeps_a_residual_that_rounding_would_hide():
    option = (2, False, ("layernorm", "pre"), "relu", "identity", True)
    reached = agree(network(option, 3), nearly_equal_tokens())
    assert -152 < reached < -148


def test_numbers_at_the_end_of_float64_keep_their_digits():
    """A residual of 1e-318 stands where float64 has five digits left."""
    option = (2, False, ("layernorm", "post"), "none", "none", True)
    reached = agree(network(option, 6), tokens())
    assert -323 < reached < -308


def test_the_logarithms_triple_at_every_layer_without_a_mask():
    weights = [_layer(8, seed) for seed in range(14)]
    found = collapse_weights(tokens(6, 8), weights).collapse
    assert found.log_ratio[-3:] == pytest.approx(3.0, abs=5e-4)


def test_the_residual_halves_at_every_causal_layer_with_orthogonal_values():
    layers = []
    for seed in range(60):
        weights = _layer(8, seed, scale=0.02)
        drawn = torch.randn(8, 8, generator=torch.Generator().manual_seed(seed + 100)).double()
        weights["W_V"], weights["W_O"] = torch.linalg.qr(drawn)[0], torch.eye(8).double()
        layers.append(weights)
    found = collapse_weights(tokens(6, 8), layers, causal=True).collapse
    assert 10 ** found.rate[-10:] == pytest.approx(0.5, rel=2e-3)
    assert found.log10_residual[-1] < -15


@pytest.mark.parametrize("gain", [1e60, 1e-60])
@pytest.mark.parametrize("causal", [False, True])
def test_the_shared_part_of_the_tokens_may_have_any_size(gain, causal):
    """|x| grows to 1e360 or shrinks to 1e-360; queries and keys are scaled the other way."""
    layers, size = [], 1.0
    for seed in range(6):
        weights = _layer(4, seed)
        weights["W_Q"] = weights["W_Q"] / size
        weights["W_K"] = weights["W_K"] / size
        weights["W_V"] = weights["W_V"] * gain
        size *= gain
        layers.append(weights)
    found = collapse_weights(tokens(4, 4), layers, causal=causal).collapse
    assert 350 < abs(found.log10_norm[-1]) < 370
    true = _naive_weights(tokens(4, 4), layers, causal=causal)
    assert max(naive.relative_errors(found, true)) < 1e-10


def test_forty_layers_reach_a_logarithm_of_minus_ten_to_the_eighteen():
    weights = [_layer(8, seed) for seed in range(40)]
    found = collapse_weights(tokens(6, 8), weights).collapse
    assert found.log10_residual[-1] < -1e18
    assert isinstance(found.exponent[-1], int)
    assert math.isfinite(found.log10_norm[-1])


def test_biases_of_bare_weights_act_as_in_the_formula():
    layers = []
    for seed in range(5):
        weights = _layer(4, seed)
        generator = torch.Generator().manual_seed(seed + 50)
        for name in ("b_Q", "b_K", "b_V", "b_O"):
            weights[name] = torch.randn(4, generator=generator, dtype=torch.float64)
        layers.append(weights)
    for heads, causal in itertools.product((1, 2), (False, True)):
        found = collapse_weights(tokens(), layers, causal=causal, heads=heads).collapse
        true = _naive_weights(tokens(), layers, causal=causal, heads=heads)
        assert max(naive.relative_errors(found, true)) < 1e-10


def test_the_asymptotic_law_is_reached():
    """R' = (1/n) R W_QK R' R W_V / sqrt(d), in mpmath, once the tokens are nearly equal."""
    weights = [_layer(4, seed) for seed in range(6)]
    x = naive.rows_of(tokens())
    for layer in weights:
        entering = x
        x = _naive_layer(x, layer, heads=1, causal=False)
    r = _centred(entering)
    predicted = _law(r, weights[-1])
    true = _centred(x)
    off = mp.sqrt(
        mp.fsum(
            (a - b) ** 2
            for p, t in zip(predicted, true, strict=True)
            for a, b in zip(p, t, strict=True)
        )
    )
    assert off / naive.residual(x) < 1e-20


def test_large_logits_do_not_overflow():
    """A query-key gain of 200, where splitting the exponentials alone would overflow."""
    weights = [_layer(6, seed, scale=20.0) for seed in range(4)]
    found = collapse_weights(tokens(5, 6), weights).collapse
    true = _naive_weights(tokens(5, 6), weights, causal=False)
    for error, estimate in zip(naive.relative_errors(found, true), found.error, strict=True):
        assert error <= estimate
    assert np.isfinite(found.log10_residual).all()


@pytest.mark.parametrize("sharpness", [700.0, 742.0, 746.0, 2000.0])
@pytest.mark.parametrize("causal", [False, True])
def test_weights_below_the_range_of_float64_keep_their_digits(causal, sharpness):
    """Two tokens, one feature: all but exp(-sharpness) of the weight goes to one of them."""
    one = torch.ones(1, 1, dtype=torch.float64)
    x = torch.tensor([[1.0], [2.0]]).double() if causal else torch.tensor([[1.5], [0.5]]).double()
    query = -sharpness / 2 if causal else sharpness
    layer = {"W_Q": query * one, "W_K": one, "W_V": one, "W_O": one}
    found = collapse_weights(x, [layer], causal=causal).collapse
    true = _naive_weights(x, [layer], causal=causal)
    assert found.log10_residual[-1] < -150
    assert max(naive.relative_errors(found, true)) < 1e-12


def test_large_tokens_make_sharp_patterns_and_are_followed():
    """Tokens far from the origin: nearly all weight goes to one key from the first layer on."""
    x = tokens(4, 6) + 300.0
    weights = [_layer(6, seed) for seed in range(3)]
    found = collapse_weights(x, weights, heads=2).collapse
    true = _naive_weights(x, weights, causal=False, heads=2)
    assert found.log10_residual[-1] < -40
    for error, estimate in zip(naive.relative_errors(found, true), found.error, strict=True):
        assert error < 1e-8 and error <= estimate


@pytest.mark.parametrize("norm", ["dyt", "derf"])
def test_saturated_curves_do_not_cancel(norm):
    """Tokens around 30: tanh and erf are 1 to the last digit at both ends."""
    mp.dps = 600
    x = tokens() * 3 + 30
    model = network((1, False, ("layernorm", "pre"), "none", "none", True), 1)
    model = model.with_(norm=norm, placement="pre").double()
    found = collapse(model, x).collapse
    part = next(iter(model.sublayers()))
    rows = naive.rows_of(x)
    alpha, weight = mpf(part.enter.alpha.item()), naive.numbers(part.enter.weight)
    bias = naive.numbers(part.enter.bias)
    curve = mp.tanh if norm == "dyt" else mp.erf
    z = [
        [g * curve(alpha * v) + b for v, g, b in zip(row, weight, bias, strict=True)]
        for row in rows
    ]
    branch = part.branch
    both = naive.linear(z, naive.rows_of(branch.qkv.weight), naive.numbers(branch.qkv.bias))
    q, k, v = ([row[4 * i : 4 * i + 4] for row in both] for i in range(3))
    mixed = naive.attention(z, q, k, v, heads=1, causal=False)
    out = naive.linear(
        mixed, naive.rows_of(branch.output.weight), naive.numbers(branch.output.bias)
    )
    true = naive.residual(out)
    assert found.log10_residual[-1] < -30
    assert naive.relative_errors(found, [naive.residual(rows), true])[1] < 1e-9


def test_one_key_that_takes_nearly_all_weight_costs_no_digits():
    """All rows look at the same token up to 1e-60: what is left of them differs by that much."""
    weights = _layer(4, 3)
    x = tokens() * 0.01
    weights["b_Q"] = torch.full((4,), 4e4, dtype=torch.float64)
    found = collapse_weights(x, [weights]).collapse
    true = _naive_weights(x, [weights], causal=False)
    assert found.log10_residual[-1] < -20
    assert max(naive.relative_errors(found, true)) < 1e-10


def _layer(width: int, seed: int, *, scale: float = 1.0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def draw() -> torch.Tensor:
        return torch.randn(width, width, generator=generator, dtype=torch.float64) / width**0.5

    return {"W_Q": scale * draw(), "W_K": scale * draw(), "W_V": draw(), "W_O": draw()}


def _naive_weights(stream, layers, *, causal: bool, heads: int = 1):
    x = naive.rows_of(stream)
    found = [naive.residual(x)]
    for layer in layers:
        x = _naive_layer(x, layer, heads=heads, causal=causal)
        found.append(naive.residual(x))
    return found


def _naive_layer(x, layer, *, heads: int, causal: bool):
    def projected(rows, name):
        bias = layer.get(f"b_{name}")
        bias = None if bias is None else naive.numbers(bias)
        return naive.linear(rows, naive.rows_of(layer[f"W_{name}"].T), bias)

    q, k, v = (projected(x, name) for name in "QKV")
    return projected(naive.attention(x, q, k, v, heads=heads, causal=causal), "O")


def _centred(x):
    count = len(x)
    mean = [mp.fsum(row[f] for row in x) / count for f in range(len(x[0]))]
    return [[v - m for v, m in zip(row, mean, strict=True)] for row in x]


def _law(r, layer):
    q = naive.linear(r, naive.rows_of(layer["W_Q"].T), None)
    k = naive.linear(r, naive.rows_of(layer["W_K"].T), None)
    v = naive.linear(
        naive.linear(r, naive.rows_of(layer["W_V"].T), None), naive.rows_of(layer["W_O"].T), None
    )
    count = len(r)
    scale = mpf(1) / (mp.sqrt(len(q[0])) * count)
    scores = [[scale * mp.fdot(a, b) for b in k] for a in q]
    return [
        [mp.fsum(s * v[j][f] for j, s in enumerate(row)) for f in range(len(v[0]))]
        for row in scores
    ]
