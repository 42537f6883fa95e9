"""W_O of the heads and the two maps of an MLP are found by their values, and proved."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from leadline.anatomy.tap.output_projection import (
    ACTIVATIONS,
    BranchProducts,
    OutputProjection,
    Perceptron,
)
from leadline.anatomy.tap.projections import WeightProduct
from leadline.anatomy.tap.seen_attention import SeenAttention

EXAMPLES, TOKENS, HEADS, SIZE, WIDTH, HIDDEN = 2, 5, 3, 4, 6, 10


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> WeightProduct:
    return WeightProduct(x, weight, bias, F.linear(x, weight, bias), True)


def seen(output: Tensor) -> SeenAttention:
    return SeenAttention("attention", "kernel", value=output, output=output, query=output)


def heads() -> Tensor:
    return drawn(EXAMPLES, HEADS, TOKENS, SIZE)


WEIGHT, BIAS = drawn(WIDTH, HEADS * SIZE, seed=1), drawn(WIDTH, seed=2)


def joined(output: Tensor) -> Tensor:
    return output.transpose(1, 2).flatten(2)


# --- heads -----------------------------------------------------------------------------------------


def test_every_head_has_its_own_rows() -> None:
    products, output = BranchProducts(), heads()
    used = linear(joined(output), WEIGHT, BIAS)
    products.product(used)
    found = products.output_of(seen(output), used.returned, gain=1.0)
    assert isinstance(found, OutputProjection) and found.bias is not None
    assert torch.equal(found.weight, WEIGHT.T.double().reshape(HEADS, SIZE, WIDTH))
    assert torch.equal(found.bias, BIAS.double())
    whole = torch.einsum("ehtf,hfd->etd", output.double(), found.weight) + found.bias
    assert torch.allclose(whole, used.returned.double(), atol=1e-5)


@pytest.mark.parametrize("layout", ["flat", "tokens first", "tokens first and flat"])
def test_examples_and_tokens_may_come_in_any_order(layout: str) -> None:
    products, output = BranchProducts(), heads()
    x = joined(output)
    if "first" in layout:
        x = x.transpose(0, 1)
    if "flat" in layout:
        x = x.flatten(0, 1)
    used = linear(x, WEIGHT, BIAS)
    products.product(used)
    written = F.linear(joined(output), WEIGHT, BIAS)
    assert isinstance(products.output_of(seen(output), written, gain=1.0), OutputProjection)


def test_a_matrix_by_columns_is_the_transposed_one() -> None:
    products, output = BranchProducts(), heads()
    returned = joined(output) @ WEIGHT.T
    products.product(WeightProduct(joined(output), WEIGHT.T.contiguous(), None, returned, False))
    found = products.output_of(seen(output), returned, gain=1.0)
    assert isinstance(found, OutputProjection) and found.bias is None
    assert torch.equal(found.weight, WEIGHT.T.double().reshape(HEADS, SIZE, WIDTH))


def test_the_gain_of_the_write_is_taken_in() -> None:
    products, output = BranchProducts(), heads()
    used = linear(joined(output), WEIGHT, BIAS)
    products.product(used)
    found = products.output_of(seen(output), used.returned * 0.25, gain=0.25)
    assert isinstance(found, OutputProjection) and found.bias is not None
    assert torch.equal(found.weight, WEIGHT.T.double().reshape(HEADS, SIZE, WIDTH) * 0.25)
    assert torch.equal(found.bias, BIAS.double() * 0.25)
    wrong = products.output_of(seen(output), used.returned * 0.25, gain=1.0)
    assert isinstance(wrong, str) and "not what is written" in wrong


def test_what_stands_between_or_after_is_refused() -> None:
    products, output = BranchProducts(), heads()
    used = linear(joined(output) * 1.0001, WEIGHT, BIAS)
    products.product(used)
    between = products.output_of(seen(output), used.returned, gain=1.0)
    assert isinstance(between, str) and "stands between" in between
    exact = linear(joined(output), WEIGHT, BIAS)
    products.product(exact)
    after = products.output_of(seen(output), F.layer_norm(exact.returned, (WIDTH,)), gain=1.0)
    assert isinstance(after, str) and "not what is written" in after


def test_heads_in_another_order_are_not_taken() -> None:
    products, output = BranchProducts(), heads()
    products.product(used := linear(joined(output.flip(1)), WEIGHT, BIAS))
    assert isinstance(products.output_of(seen(output), used.returned, gain=1.0), str)


def test_what_was_forgotten_is_not_found() -> None:
    products, output = BranchProducts(), heads()
    products.product(used := linear(joined(output), WEIGHT, BIAS))
    products.forget()
    assert isinstance(products.output_of(seen(output), used.returned, gain=1.0), str)


# --- perceptrons -----------------------------------------------------------------------------------

UP, UP_BIAS = drawn(HIDDEN, WIDTH, seed=3), drawn(HIDDEN, seed=4)
DOWN, DOWN_BIAS = drawn(WIDTH, HIDDEN, seed=5), drawn(WIDTH, seed=6)


def mlp(
    act: Callable[[Tensor], Tensor], stream: Tensor, dtype: torch.dtype = torch.float32
) -> tuple[BranchProducts, Tensor]:
    products = BranchProducts()
    first = linear(stream.to(dtype), UP.to(dtype), UP_BIAS.to(dtype))
    second = linear(act(first.returned), DOWN.to(dtype), DOWN_BIAS.to(dtype))
    products.product(first)
    products.product(second)
    return products, second.returned


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_two_maps_and_their_activation_are_found(name: str, dtype: torch.dtype) -> None:
    stream = drawn(EXAMPLES, TOKENS, WIDTH, dtype=dtype)
    products, written = mlp(ACTIVATIONS[name], stream, dtype)
    found = products.perceptron_of(written, stream, gain=1.0)
    assert isinstance(found, Perceptron) and found.activations == (name,)
    assert torch.equal(found.up, UP.T.double()) and torch.equal(found.down, DOWN.T.double())
    assert found.up_bias is not None and torch.equal(found.up_bias, UP_BIAS.double())
    assert found.down_bias is not None and torch.equal(found.down_bias, DOWN_BIAS.double())


def test_gelu_by_hand_is_gelu() -> None:
    """GPT-2 writes its activation out: no function of that name is ever called."""

    def by_hand(x: Tensor) -> Tensor:
        return 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x.pow(3))))

    stream = drawn(EXAMPLES, TOKENS, WIDTH)
    products, written = mlp(by_hand, stream)
    found = products.perceptron_of(written, stream, gain=1.0)
    assert isinstance(found, Perceptron) and found.activations == ("gelu_tanh",)


def test_an_activation_in_place_is_found() -> None:
    stream = drawn(EXAMPLES, TOKENS, WIDTH)
    products, written = mlp(F.silu, stream)
    first = products._products[0]
    F.silu(first.returned, inplace=True)
    found = products.perceptron_of(written, stream, gain=1.0)
    assert isinstance(found, Perceptron) and found.activations == ("silu",)


def test_half_precision_may_not_tell_two_activations_apart() -> None:
    stream = drawn(EXAMPLES, TOKENS, WIDTH, dtype=torch.bfloat16)
    products, written = mlp(F.gelu, stream, torch.bfloat16)
    found = products.perceptron_of(written, stream, gain=1.0)
    assert isinstance(found, Perceptron) and {"gelu", "gelu_tanh"} <= set(found.activations)


def test_the_gain_of_an_mlp_is_taken_into_its_second_map() -> None:
    stream = drawn(EXAMPLES, TOKENS, WIDTH)
    products, written = mlp(F.relu, stream)
    found = products.perceptron_of(written * 0.5, stream, gain=0.5)
    assert isinstance(found, Perceptron)
    assert torch.equal(found.up, UP.T.double()) and torch.equal(found.down, DOWN.T.double() * 0.5)


def test_a_norm_may_stand_before_the_first_map() -> None:
    stream, norm = drawn(EXAMPLES, TOKENS, WIDTH), nn.LayerNorm(WIDTH)
    with torch.no_grad():
        normed = norm(stream)
        products, written = mlp(F.relu, normed)
        inside = products.perceptron_of(written, stream, gain=1.0)
        assert isinstance(inside, str) and "neither the stream" in inside
        products.passed(nn.Linear(1, 1), normed)
        assert isinstance(products.perceptron_of(written, stream, gain=1.0), str)
        products.passed(norm, normed)
        assert isinstance(products.perceptron_of(written, stream, gain=1.0), Perceptron)


@pytest.mark.parametrize("layout", ["two products", "one product"])
@pytest.mark.parametrize("act", [F.silu, F.gelu, torch.sigmoid])
def test_a_gated_mlp_is_called_gated(layout: str, act: Callable[[Tensor], Tensor]) -> None:
    stream, products = drawn(EXAMPLES, TOKENS, WIDTH), BranchProducts()
    gate, up = drawn(HIDDEN, WIDTH, seed=7), drawn(HIDDEN, WIDTH, seed=8)
    if layout == "two products":
        first, second = linear(stream, gate, None), linear(stream, up, None)
        products.product(first)
        products.product(second)
        hidden = act(first.returned) * second.returned
    else:
        both = linear(stream, torch.cat([gate, up]), None)
        products.product(both)
        a, b = both.returned.chunk(2, -1)
        hidden = act(a) * b
    products.product(down := linear(hidden, DOWN, None))
    why = products.perceptron_of(down.returned, stream, gain=1.0)
    assert isinstance(why, str) and "gated" in why


def test_other_branches_are_refused_with_their_reason() -> None:
    stream = drawn(EXAMPLES, TOKENS, WIDTH)
    products, written = mlp(lambda x: F.relu(x) ** 2, stream)
    why = products.perceptron_of(written, stream, gain=1.0)
    assert isinstance(why, str) and "known activation" in why
    several = products.perceptron_of(written + drawn(WIDTH), stream, gain=1.0)
    assert isinstance(several, str) and "no single product" in several
