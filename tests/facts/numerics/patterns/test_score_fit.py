"""Scaling and bias between products and logits: constants of a row do not count."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from leadline.numerics.patterns.score_fit import ROUNDING, fit_scores, same_bias

EPS = torch.finfo(torch.float32).eps


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


QUERY, KEY = drawn(2, 7, 4), drawn(2, 7, 4, seed=1)
PRODUCTS = QUERY @ KEY.mT
ROWS = 5 * drawn(2, 7, 1, seed=2)
HIDDEN = torch.ones(7, 7, dtype=torch.bool).triu(1)


def test_a_scaling_is_found_whatever_is_added_to_whole_rows() -> None:
    found = fit_scores(QUERY, KEY, 0.3 * PRODUCTS + ROWS)
    assert found is not None
    assert found.scaling == pytest.approx(0.3, rel=1e-10)
    assert found.bias_range == 0.0


def test_a_bias_is_the_range_over_the_keys_that_a_row_sees() -> None:
    bias = drawn(1, 7, 7, seed=3)
    logits = (0.3 * PRODUCTS + bias + ROWS).masked_fill(HIDDEN, -torch.inf)
    found = fit_scores(QUERY, KEY, logits, scaling=0.3)
    ranges = [float(bias[0, i, : i + 1].max() - bias[0, i, : i + 1].min()) for i in range(7)]
    assert found is not None
    assert found.bias_range == pytest.approx(max(ranges), rel=1e-9)


def test_without_a_scaling_a_bias_is_not_told() -> None:
    assert fit_scores(QUERY, KEY, 0.3 * PRODUCTS + drawn(1, 7, 7, seed=3)) is None


@pytest.mark.parametrize(("count", "bias"), [(0.9, False), (1.1, True)])
def test_what_is_within_rounding_of_the_largest_logit_is_no_bias(count: float, bias: bool) -> None:
    """64 eps of one plus the largest logit, which is 4 here."""
    query = torch.tensor([[[1.0], [2.0]]], dtype=torch.float64)
    key = torch.tensor([[[1.0], [2.0]]], dtype=torch.float64)
    logits = query @ key.mT
    logits[0, 0, 1] += count * 64 * EPS * 5
    found = fit_scores(query, key, logits, scaling=1.0)
    assert found is not None
    assert (found.bias_range > 0) is bias
    assert ROUNDING == 64.0


def test_equal_products_tell_nothing() -> None:
    assert fit_scores(torch.zeros(1, 3, 2), torch.ones(1, 3, 2), torch.zeros(1, 3, 3)) is None


def test_products_that_are_not_finite_tell_nothing() -> None:
    query = torch.full((1, 3, 2), torch.inf)
    assert fit_scores(query, torch.ones(1, 3, 2), torch.zeros(1, 3, 3), scaling=1.0) is None


def test_a_soft_cap_is_undone() -> None:
    logits = 2.0 * torch.tanh(0.3 * PRODUCTS / 2.0)
    found = fit_scores(QUERY, KEY, logits, soft_cap=2.0)
    assert found is not None and found.scaling == pytest.approx(0.3, rel=1e-8)


def test_a_logit_at_the_cap_itself_stays_finite() -> None:
    logits = 2.0 * torch.tanh(0.3 * PRODUCTS / 2.0)
    logits[0, 0, 0] = 2.0
    found = fit_scores(QUERY, KEY, logits, scaling=0.3, soft_cap=2.0)
    assert found is not None and 1.0 < found.bias_range < 60.0


def test_the_same_bias_is_the_same_at_any_length_and_for_any_row_constant() -> None:
    bias = drawn(1, 7, 7, seed=3)
    long = (QUERY, KEY, 0.3 * PRODUCTS + bias + ROWS)
    query, key = drawn(2, 5, 4, seed=6), drawn(2, 5, 4, seed=7)
    short = (query, key, 0.3 * (query @ key.mT) + bias[:, :5, :5] + drawn(2, 5, 1, seed=8))
    assert same_bias(long, short, scaling=0.3)
    assert same_bias(short, long, scaling=0.3)
    hidden = [
        (q, k, logits.masked_fill(HIDDEN[: logits.shape[1], : logits.shape[2]], -torch.inf))
        for q, k, logits in (long, short)
    ]
    assert same_bias(hidden[0], hidden[1], scaling=0.3)


def test_another_bias_is_noticed() -> None:
    one = (QUERY, KEY, 0.3 * PRODUCTS + drawn(1, 7, 7, seed=3))
    other = (QUERY, KEY, 0.3 * PRODUCTS + drawn(1, 7, 7, seed=4))
    assert not same_bias(one, other, scaling=0.3)


@pytest.mark.parametrize(("count", "same"), [(0.9, True), (1.1, False)])
def test_two_biases_may_differ_by_rounding(count: float, same: bool) -> None:
    query = torch.tensor([[[1.0], [2.0]]], dtype=torch.float64)
    key = torch.tensor([[[1.0], [2.0]]], dtype=torch.float64)
    logits = query @ key.mT
    moved = logits.clone()
    moved[0, 0, 1] += count * 64 * EPS * 5
    assert same_bias((query, key, logits), (query, key, moved), scaling=1.0) is same


def test_the_same_bias_under_a_soft_cap() -> None:
    bias = drawn(1, 7, 7, seed=3) * 0.1
    capped = [2.0 * torch.tanh((0.3 * PRODUCTS + b) / 2.0) for b in (bias, 2 * bias)]
    one, two = ((QUERY, KEY, logits) for logits in capped)
    assert same_bias(one, one, scaling=0.3, soft_cap=2.0)
    assert not same_bias(one, two, scaling=0.3, soft_cap=2.0)
