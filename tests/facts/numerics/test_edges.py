"""Where float32 ends, and what the shapes promise."""

from __future__ import annotations

import math

import pytest
import torch

from leadline.numerics import reference
from leadline.numerics.tokens import Tokens, ranks


@pytest.mark.parametrize("scale", [1e-21, 1e-18, 1e18])
def test_ranks_survive_scales_whose_squares_float32_cannot_hold(scale: float) -> None:
    x = torch.randn(1, 9, 6, generator=torch.Generator().manual_seed(7))
    for fast, slow in zip(
        ranks(Tokens(x * scale).gram()[0]),
        (reference.stable_rank(x[0, 1:]), reference.entropy_rank(x[0, 1:])),
        strict=True,
    ):
        assert float(fast) == pytest.approx(slow, rel=1e-5)


@pytest.mark.parametrize(("tokens", "width", "size"), [(4, 9, 3), (12, 5, 5)])
def test_the_gram_matrix_is_the_smaller_of_the_two(tokens: int, width: int, size: int) -> None:
    # Without the first token there are tokens - 1 rows.
    assert Tokens(torch.randn(2, tokens, width)).gram()[0].shape == (2, size, size)


def test_the_residual_of_many_tokens_is_not_biased_by_one_long_sum() -> None:
    x = torch.randn(1, 2048, 768, generator=torch.Generator().manual_seed(0))
    exact = reference.residual(x[0])
    assert float(Tokens(x).residual.all[0]) == pytest.approx(exact, rel=2e-6)
    one_sum = float(torch.linalg.vector_norm(x - x.mean(1, keepdim=True)))
    assert abs(one_sum / exact - 1) > 1e-5


def test_without_centring_first_the_residual_cancels() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(1, 1, 64, generator=g) + 1e-4 * torch.randn(1, 32, 64, generator=g)
    exact = reference.residual(x[0])
    # |X|^2 - n |m|^2, from the raw Gram matrix in float32.
    gram = x[0] @ x[0].T
    raw = float((gram.trace() - gram.sum() / 32).clamp_min(0).sqrt())
    assert abs(raw / exact - 1) > 1e-3
    assert float(Tokens(x).residual.all[0]) == pytest.approx(exact, rel=1e-5)


def test_a_zero_token_does_not_make_the_cosine_unknown() -> None:
    x = torch.randn(1, 5, 4, generator=torch.Generator().manual_seed(0))
    x[0, 2] = 0
    assert math.isfinite(Tokens(x).cosine.all) and math.isfinite(Tokens(x).cosine.rest)


def test_bfloat16_is_raised_before_it_is_summed() -> None:
    x = torch.ones(1, 2, 70_000, dtype=torch.bfloat16)
    assert float(Tokens(x).norm[0, 0]) == pytest.approx(math.sqrt(70_000), rel=1e-5)
    assert Tokens(x).residual.all.dtype == torch.float32


def test_one_token_has_neither_residual_nor_rank() -> None:
    tokens = Tokens(torch.randn(2, 1, 4))
    assert tokens.residual.all.numel() == 0
    assert tokens.gram() == []
    stable, entropy = ranks(torch.zeros(2, 0, 0))
    assert torch.isnan(stable).all() and torch.isnan(entropy).all()
