"""Random networks of all scales against mpmath: right within the estimate, or refused."""

from __future__ import annotations

import random

import pytest
import torch
from mpmath import mp

import leadline as ll
from tests.agreement import mp_transformer as naive
from tests.agreement.test_collapse_against_mpmath import _naive_weights

DEEPEST = -1200
"""Residuals below 10 to this are left to other tests: they would need too many digits."""


def drawn(seed: int):
    """A network: gains from 0.1 to 30, offsets to 3,000, sparse, rank-one and identity matrices."""
    pick, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    count, width = pick.choice((2, 3, 4, 5)), pick.choice((2, 4, 6))
    heads = pick.choice((1, 2))

    def matrix() -> torch.Tensor:
        weight = torch.randn(width, width, generator=generator, dtype=torch.float64) / width**0.5
        kind = pick.random()
        if kind < 0.1:
            return weight * (torch.rand(width, width, generator=generator) < 0.5)
        if kind < 0.15:
            return torch.outer(weight[0], weight[:, 0])
        return torch.eye(width, dtype=torch.float64) if kind < 0.2 else weight

    def vector() -> torch.Tensor:
        return torch.randn(width, generator=generator, dtype=torch.float64)

    gain = 10 ** pick.uniform(-1, 1.5)
    layers = []
    for _ in range(pick.choice((1, 2, 3))):
        layer = {"W_Q": gain * matrix(), "W_K": matrix(), "W_V": matrix(), "W_O": matrix()}
        if pick.random() < 0.3:
            layer |= {"b_Q": pick.choice((1, 30)) * vector(), "b_V": vector()}
        layers.append(layer)
    x = torch.randn(count, width, generator=generator, dtype=torch.float64)
    x = 10 ** pick.uniform(-6, 2) * x + pick.choice((0, 0, 1, 100, 3000))
    return x, layers, {"heads": heads, "causal": pick.random() < 0.4}


def outcome(seed: int) -> str:
    x, layers, options = drawn(seed)
    try:
        found = ll.collapse_weights(x, layers, **options).collapse
    except ll.InputError:
        return "refused"
    sizes = found.log10_residual
    lowest = min(size for size in sizes if size > -1e9)
    if lowest < DEEPEST:
        return "too deep"
    zero = bool((sizes < -1e9).any())
    mp.dps = int(300 - 1.2 * lowest) + (3000 if zero else 0)
    errors = naive.relative_errors(found, _naive_weights(x, layers, **options))
    for error, estimate in zip(errors, found.error, strict=True):
        assert error <= estimate, (seed, errors, found.error)
    return "right"


def judged(seeds: range) -> None:
    found = [outcome(seed) for seed in seeds]
    assert found.count("right") > 0.9 * len(seeds)
    assert found.count("refused") < 0.05 * len(seeds)


@pytest.mark.slow
def test_random_networks_are_right_within_the_estimate_or_refused():
    judged(range(60))


@pytest.mark.slow
def test_many_random_networks_are_right_within_the_estimate_or_refused():
    judged(range(1000, 1600))
