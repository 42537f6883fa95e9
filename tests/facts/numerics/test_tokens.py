"""Every fast statistic equals its slow float64 reference to 1e-5 of the quantity's scale."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leadline.numerics import reference
from leadline.numerics.tokens import Tokens, dot, ranks, real_rows, row_norms


def _draw(seed: int, *, tokens: int, width: int, collapse: float, massive: float) -> torch.Tensor:
    """[2, tokens, width]: a common vector plus differences of relative size `collapse`."""
    g = torch.Generator().manual_seed(seed)
    common = torch.randn(2, 1, width, generator=g)
    x = common + collapse * torch.randn(2, tokens, width, generator=g)
    x[:, 0] *= massive
    return x


cases = st.builds(
    _draw,
    st.integers(0, 10_000),
    tokens=st.integers(3, 40),
    width=st.sampled_from([2, 8, 33]),
    collapse=st.sampled_from([1.0, 1e-2, 1e-6]),
    massive=st.sampled_from([1.0, 1000.0]),
)


@settings(max_examples=60, deadline=None)
@given(cases)
def test_residuals_equal_their_reference_even_when_tokens_have_collapsed(x: torch.Tensor) -> None:
    tokens = Tokens(x)
    for e in range(2):
        for fast, part in ((tokens.residual.all[e], x[e]), (tokens.residual.rest[e], x[e, 1:])):
            assert float(fast) == pytest.approx(reference.residual(part), rel=1e-5)
        assert float(tokens.relative_residual.all[e]) == pytest.approx(
            reference.relative_residual(x[e]), rel=1e-5
        )
        assert float(tokens.relative_residual.rest[e]) == pytest.approx(
            reference.relative_residual(x[e, 1:]), rel=1e-5
        )


@settings(max_examples=30, deadline=None)
@given(cases)
def test_cosine_and_ranks_equal_their_reference(x: torch.Tensor) -> None:
    tokens = Tokens(x)
    stable, entropy = ranks(tokens.gram()[0])
    for e in range(2):
        assert float(tokens.cosine.all[e]) == pytest.approx(reference.mean_cosine(x[e]), abs=1e-5)
        rest = x[e, 1:]
        assert float(tokens.cosine.rest[e]) == pytest.approx(reference.mean_cosine(rest), abs=1e-5)
        assert float(stable[e]) == pytest.approx(reference.stable_rank(rest), rel=1e-5)
        assert float(entropy[e]) == pytest.approx(reference.entropy_rank(rest), rel=1e-5)


def test_a_relative_residual_of_1e_6_keeps_five_digits() -> None:
    g = torch.Generator().manual_seed(3)
    x = (torch.randn(1, 1, 768, generator=g) + 1e-6 * torch.randn(1, 128, 768, generator=g)).float()
    exact = reference.relative_residual(x[0])
    assert 5e-7 < exact < 2e-6
    assert float(Tokens(x).relative_residual.all[0]) == pytest.approx(exact, rel=1e-5)


def test_token_norm_mean_and_variance_are_those_of_the_features() -> None:
    x = torch.tensor([[[3.0, 4.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]]])
    tokens = Tokens(x)
    assert tokens.norm.tolist() == [[5.0, 2.0]]
    assert tokens.mean.tolist() == [[1.75, 1.0]]
    assert tokens.variance[0].tolist() == pytest.approx([3.1875, 0.0])


def test_variance_survives_a_large_mean() -> None:
    x = 1000 + torch.randn(1, 4, 512, generator=torch.Generator().manual_seed(0))
    exact = x.double().var(-1, correction=0)
    torch.testing.assert_close(Tokens(x).variance.double(), exact, rtol=1e-5, atol=0)


def test_equal_tokens_have_no_residual_cosine_one_and_rank_zero() -> None:
    x = torch.ones(1, 5, 4)
    tokens = Tokens(x)
    assert float(tokens.residual.all) == 0.0
    assert float(tokens.cosine.all) == pytest.approx(1.0)
    stable, entropy = ranks(tokens.gram()[0])
    assert float(stable) == 0.0 and float(entropy) == 0.0


def test_orthogonal_tokens_have_cosine_zero_and_full_rank() -> None:
    x = torch.cat([torch.zeros(1, 4), torch.eye(4)]).unsqueeze(0)
    x[0, 0, 0] = 7.0
    tokens = Tokens(x)
    assert float(tokens.cosine.rest) == pytest.approx(0.0, abs=1e-7)
    stable, entropy = ranks(tokens.gram()[0])
    # Four orthogonal unit tokens, centred, span three directions evenly.
    assert float(stable) == pytest.approx(3.0, rel=1e-5)
    assert float(entropy) == pytest.approx(3.0, rel=1e-5)


def test_a_massive_first_token_does_not_touch_what_leaves_it_out() -> None:
    g = torch.Generator().manual_seed(5)
    x = torch.randn(1, 16, 8, generator=g)
    wild = x.clone()
    wild[:, 0] *= 1e4
    calm, massive = Tokens(x), Tokens(wild)
    assert torch.equal(calm.residual.rest, massive.residual.rest)
    assert float(massive.cosine.rest) == pytest.approx(float(calm.cosine.rest), abs=1e-6)
    assert float(massive.residual.all) > 1000 * float(calm.residual.all)


def test_padding_is_left_out_and_the_first_real_token_is_the_first() -> None:
    g = torch.Generator().manual_seed(6)
    x = torch.randn(2, 6, 8, generator=g)
    mask = torch.tensor([[1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1]]).bool()
    padded = x.clone()
    padded[~mask] = 1e6
    tokens = Tokens(padded, mask)
    for e, part in enumerate((x[0, :4], x[1, 2:])):
        assert float(tokens.residual.all[e]) == pytest.approx(reference.residual(part), rel=1e-5)
        assert float(tokens.cosine.rest[e]) == pytest.approx(
            reference.mean_cosine(part[1:]), abs=1e-5
        )
        stable, _ = ranks(tokens.gram()[e])
        assert float(stable) == pytest.approx(reference.stable_rank(part[1:]), rel=1e-5)


@pytest.mark.parametrize("scale", [1e-16, 1e-12, 1e12, 1e16])
def test_ranks_do_not_depend_on_the_scale(scale: float) -> None:
    x = torch.randn(1, 9, 6, generator=torch.Generator().manual_seed(7))
    for fast, scaled in zip(
        ranks(Tokens(x).gram()[0]), ranks(Tokens(x * scale).gram()[0]), strict=True
    ):
        assert float(scaled) == pytest.approx(float(fast), rel=1e-5)


def test_one_token_has_no_pairs() -> None:
    tokens = Tokens(torch.randn(2, 1, 4))
    assert tokens.cosine.all.numel() == 0
    assert tokens.residual.rest.numel() == 0


def test_two_tokens_are_one_pair_and_none_without_the_first() -> None:
    x = torch.tensor([[[1.0, 0.0], [1.0, 1.0]]])
    tokens = Tokens(x)
    assert float(tokens.cosine.all) == pytest.approx(0.5**0.5)
    assert tokens.cosine.rest.numel() == 0
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]]).bool()
    padded = Tokens(torch.ones(2, 3, 2), mask)
    assert padded.cosine.all.shape == (2,) and padded.cosine.rest.shape == (1,)


def test_nan_goes_through_the_ranks_without_a_crash() -> None:
    x = torch.randn(2, 6, 4)
    x[0, 3, 2] = float("nan")
    stable, entropy = ranks(Tokens(x).gram()[0])
    assert math.isnan(stable[0]) and math.isnan(entropy[0])
    assert math.isfinite(stable[1]) and math.isfinite(entropy[1])


def test_half_precision_is_raised_before_it_is_summed() -> None:
    x = torch.full((1, 2, 70_000), 1.0, dtype=torch.float16)
    assert float(Tokens(x).norm[0, 0]) == pytest.approx(math.sqrt(70_000), rel=1e-5)


def test_cosine_of_a_zero_token_is_zero() -> None:
    first, second = Tokens(torch.zeros(1, 1, 3)), Tokens(torch.ones(1, 1, 3))
    assert float(dot(first, second)) == 0.0
    assert float(dot(second, second)) == pytest.approx(1.0)


def test_norms_whose_squares_leave_float32_are_those_of_float64() -> None:
    x = torch.randn(4, 7, generator=torch.Generator().manual_seed(0))
    x *= torch.tensor([1e-30, 1.0, 1e25, 0.0]).unsqueeze(-1)

    norms = row_norms(x)

    expected = [math.sqrt(math.fsum(float(v) ** 2 for v in row)) for row in x]
    assert norms.tolist() == pytest.approx(expected, rel=1e-6)
    assert norms[1] == torch.linalg.vector_norm(x[1])
    assert norms[3] == 0
    assert row_norms(torch.zeros(3, 0)).tolist() == [0, 0, 0]


def _exact(row: torch.Tensor) -> float:
    return float(mpmath.sqrt(mpmath.fsum(mpmath.mpf(value) ** 2 for value in row.tolist())))


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e-22, 3e-15, 1e14, 1e18, 1e25, 1e30])
def test_norms_are_right_at_every_scale(scale: float) -> None:
    x = torch.randn(1, 5, 64, generator=torch.Generator().manual_seed(0)) * scale
    found = row_norms(x[0])
    for row, norm in zip(x[0], found, strict=True):
        assert float(norm) == pytest.approx(_exact(row), rel=1e-6)


def test_rows_of_all_scales_stand_in_one_batch() -> None:
    rows = [
        torch.full((9,), value) for value in (0.0, 1e-40, 1e-25, 2.0, 1e25, torch.inf, torch.nan)
    ]
    found = row_norms(torch.stack(rows))
    assert found[:6].tolist() == pytest.approx([0.0, 3e-40, 3e-25, 6.0, 3e25, torch.inf], rel=1e-4)
    assert found[6].isnan()


def test_norms_are_those_of_torch_to_the_last_bit_where_squares_are_numbers() -> None:
    x = torch.randn(64, 96, generator=torch.Generator().manual_seed(1))
    assert torch.equal(row_norms(x), torch.linalg.vector_norm(x, dim=-1))


def test_scales_are_exact_powers_of_two_over_the_range_of_float32() -> None:
    powers = torch.arange(-126.0, 127.0)
    assert torch.exp2(powers).tolist() == [2.0**power for power in powers.int().tolist()]


def test_places_of_real_tokens_are_those_of_the_mask() -> None:
    mask = torch.tensor([[0, 1, 1], [1, 0, 1], [0, 0, 0]])
    assert [row.tolist() for row in real_rows(mask)] == [[1, 2], [0, 2], []]
