"""Where queries and keys come from is found by their values: no name is asked."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from leadline.anatomy.tap.norm_gains import norm_reach
from leadline.anatomy.tap.projections import Projections


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def split(y: Tensor, heads: int) -> Tensor:
    return y.unflatten(-1, (heads, -1)).transpose(1, 2)


def turned(x: Tensor) -> Tensor:
    """Rotary positions: pairs turned by an angle that grows with the token."""
    angle = torch.arange(x.shape[2]).float()[:, None] * torch.linspace(0.3, 1.0, x.shape[3] // 2)
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def test_a_linear_map_is_found_with_its_rows_and_bias() -> None:
    weight, bias, z = drawn(12, 6), drawn(12, seed=1), drawn(2, 5, 6, seed=2)
    known = Projections()
    known.product(
        drawn(2, 5, 6, seed=3), drawn(12, 6, seed=4), None, drawn(2, 5, 12, seed=5), by_rows=True
    )
    known.product(z, weight, bias, z @ weight.T + bias, by_rows=True)
    source = known.source(split(z @ weight.T + bias, 3))
    assert source is not None and source.weight is not None and source.bias is not None
    assert not source.turned
    assert torch.equal(source.weight.float(), weight.reshape(3, 4, 6))
    assert torch.equal(source.bias.float(), bias.reshape(3, 4))


def test_rotary_positions_turn_and_keep_the_length() -> None:
    weight, z = drawn(12, 6), drawn(2, 5, 6, seed=2)
    known = Projections()
    known.product(z, weight, None, z @ weight.T, by_rows=True)
    source = known.source(turned(split(z @ weight.T, 3)))
    assert source is not None and source.turned
    assert source.weight is not None
    assert torch.equal(source.weight.float(), weight.reshape(3, 4, 6))
    assert source.bias is None


def test_heads_are_found_in_a_matrix_that_holds_queries_keys_and_values_by_head() -> None:
    """The layout of GPT-NeoX: [head, (query, key, value), feature]."""
    weight, z = drawn(36, 6), drawn(2, 5, 6, seed=2)
    known = Projections()
    product = z @ weight.T
    known.product(z, weight, None, product, by_rows=True)
    keys = product.unflatten(-1, (3, 3, 4))[:, :, :, 1].transpose(1, 2)
    source = known.source(turned(keys))
    assert source is not None and source.weight is not None
    assert torch.equal(source.weight.float(), weight.reshape(3, 3, 4, 6)[:, 1])


def test_a_factor_between_product_and_attention_is_part_of_the_weights() -> None:
    weight, bias, z = drawn(12, 6), drawn(12, seed=1), drawn(2, 5, 6, seed=2)
    known = Projections()
    product = z @ weight.T + bias
    known.product(z, weight, bias, product, by_rows=True)
    source = known.source(split(product * 0.25, 3))
    assert source is not None and source.weight is not None and source.bias is not None
    assert torch.allclose(source.weight.float(), weight.reshape(3, 4, 6) * 0.25, rtol=1e-5)
    assert torch.allclose(source.bias.float(), bias.reshape(3, 4) * 0.25, rtol=1e-5)


def test_a_matrix_by_columns_is_the_transposed_one() -> None:
    weight, z = drawn(6, 12), drawn(10, 6, seed=2)
    known = Projections()
    known.product(z, weight, None, z @ weight, by_rows=False)
    source = known.source(split((z @ weight).reshape(2, 5, 12), 3))
    assert source is not None and source.weight is not None
    assert torch.equal(source.weight.float(), weight.T.reshape(3, 4, 6))


def test_tokens_before_examples_are_understood() -> None:
    weight, z = drawn(12, 6), drawn(5, 2, 6, seed=2)
    known = Projections()
    known.product(z, weight, None, z @ weight.T, by_rows=True)
    source = known.source(split((z @ weight.T).transpose(0, 1), 3))
    assert source is not None and not source.turned


def test_what_is_no_linear_map_has_no_source() -> None:
    weight, z = drawn(12, 6), drawn(2, 5, 6, seed=2)
    known = Projections()
    known.product(z, weight, None, z @ weight.T, by_rows=True)
    assert known.source(split(z @ weight.T, 3) + 0.5) is None
    assert known.source(None) is None


def test_lengths_of_very_few_tokens_prove_nothing() -> None:
    weight, z = drawn(4, 6), drawn(1, 3, 6, seed=2)
    known = Projections()
    known.product(z, weight, None, z @ weight.T, by_rows=True)
    product = split(z @ weight.T, 1)
    assert known.source(product) is not None
    assert known.source(turned(product)) is None


def test_the_norm_before_the_projection_is_the_one_whose_output_entered() -> None:
    first, second = nn.LayerNorm(6), nn.LayerNorm(6)
    weight = drawn(12, 6)
    known = Projections()
    with torch.no_grad():
        z = first(drawn(2, 5, 6, seed=2))
        known.passed("first", first, z)
        known.passed("second", second, second(drawn(2, 5, 6, seed=3)))
    known.product(z, weight, None, z @ weight.T, by_rows=True)
    source = known.source(split(z @ weight.T, 3))
    assert source is not None and source.norm is not None
    assert source.norm.module == "first"


def test_a_stream_that_no_norm_returned_has_no_norm() -> None:
    z, weight = drawn(2, 5, 6, seed=2), drawn(12, 6)
    known = Projections()
    known.product(z, weight, None, z @ weight.T, by_rows=True)
    source = known.source(split(z @ weight.T, 3))
    assert source is not None and source.norm is None


def test_a_norm_on_the_queries_stands_last() -> None:
    weight, norm, z = drawn(12, 6), nn.RMSNorm(4), drawn(2, 5, 6, seed=2)
    known = Projections()
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([1.0, 3.0, -4.0, 2.0]))
        product = (z @ weight.T).unflatten(-1, (3, 4))
        known.product(z, weight, None, product.flatten(2), by_rows=True)
        normed = norm(product)
        known.passed("q_norm", norm, normed)
    source = known.source(turned(normed.transpose(1, 2)))
    assert source is not None and source.weight is None and source.norm is not None
    assert source.module == "q_norm"
    assert torch.allclose(source.norm.gain.float(), norm.weight.detach().abs(), rtol=1e-5)


@pytest.mark.parametrize("kind", [nn.LayerNorm, nn.RMSNorm])
def test_gain_and_shift_are_read_off_the_answers(kind: type[nn.Module]) -> None:
    norm = kind(6)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.copy_(drawn(6, seed=7))
    reach = norm_reach("norm", norm, drawn(2, 3, 6))
    assert reach is not None
    assert torch.allclose(reach.gain.float(), norm.weight.abs(), rtol=1e-4)  # type: ignore[operator, arg-type]
    shift = getattr(norm, "bias", None)
    expected = torch.zeros(6) if shift is None else shift
    assert torch.allclose(reach.shift.float(), expected, rtol=1e-4, atol=1e-5)


def test_gemmas_weight_counts_from_one() -> None:
    class OnePlusNorm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([0.0, 1.0, -3.0, 0.5]))

        def forward(self, x: Tensor) -> Tensor:
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * (1 + self.weight)

    reach = norm_reach("norm", OnePlusNorm(), drawn(1, 2, 4))
    assert reach is not None
    assert torch.allclose(reach.gain.float(), torch.tensor([1.0, 2.0, 2.0, 1.5]), rtol=1e-5)


def test_what_grows_with_its_input_is_no_norm() -> None:
    class ScaleNorm(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * x

    assert norm_reach("norm", ScaleNorm(), drawn(1, 2, 4)) is None


def test_an_odd_width_cannot_be_asked() -> None:
    assert norm_reach("norm", nn.LayerNorm(5), drawn(1, 2, 5)) is None


def test_no_output_leaves_the_reach_of_its_norm() -> None:
    norm = nn.LayerNorm(6)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.copy_(drawn(6, seed=7))
        reach = norm_reach("norm", norm, drawn(2, 3, 6))
        assert reach is not None
        size = torch.linalg.vector_norm(norm(drawn(500, 6, seed=8) * 10), dim=-1)
    most = float(reach.gain.max()) * 6**0.5 + float(torch.linalg.vector_norm(reach.shift))
    assert float(size.max()) <= most


class PartialNorm(nn.Module):
    """Divides by the root mean square of its first features only."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x[..., :4].square().mean(-1, keepdim=True) + 1e-6)


class MeanNorm(nn.Module):
    """Divides by the mean size instead of the root mean square."""

    def forward(self, x: Tensor) -> Tensor:
        return x / x.abs().mean(-1, keepdim=True).clamp_min(1e-6)


@pytest.mark.parametrize("kind", [PartialNorm, MeanNorm])
def test_a_norm_that_lets_longer_vectors_through_is_not_believed(kind: type[nn.Module]) -> None:
    assert norm_reach("norm", kind(), drawn(1, 2, 32)) is None


def test_a_norm_with_a_dead_feature_is_believed() -> None:
    norm = nn.LayerNorm(8)
    with torch.no_grad():
        norm.weight[3] = 0.0
    reach = norm_reach("norm", norm, drawn(1, 2, 8))
    assert reach is not None and float(reach.gain[3]) == 0.0
