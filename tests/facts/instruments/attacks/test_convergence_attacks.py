"""Attacks on the conditions for convergence: the true one is met near its edge, and holds."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from leadline.instruments.attacks.convergence import (
    DEEP,
    FARTHEST,
    KINDS,
    NEAREST,
    _case,
    _look,
    _near_one,
    as_written_attack,
    convergence_attack,
    optimised_convergence_attack,
)
from leadline.instruments.attacks.shapes import STACK_KINDS, StackShape
from leadline.instruments.attacks.stacks import Stacks
from leadline.theory import COLLAPSE_BOUNDS, StackFacts
from leadline.theory.rank_collapse.collapse_published import published_factor


def condition(facts: StackFacts) -> float:
    """c r^2 of the proved bound."""
    factors = COLLAPSE_BOUNDS.get("collapse-proved")().factors(facts)
    return 10 ** (max(factors) + 2 * facts.log10_composite[0])


def stacks(kind: str = "one-head", activation: str = "none", depth: int = 1) -> Stacks:
    heads = STACK_KINDS[kind].heads[-1]
    shape = StackShape(3, 2, heads, 2, depth, 3, activation, False)  # type: ignore[arg-type]
    return Stacks(STACK_KINDS[kind], 8, shape, generator=torch.Generator().manual_seed(3))


def test_as_many_networks_meet_the_condition_as_were_asked_for_and_all_of_them_fall() -> None:
    found = convergence_attack(count=200, seed=1)["convergence"]
    assert (found.within.attacks, found.outside.attacks) == (200, 0)
    assert 0.1 < found.within.ratio < 1
    assert condition(found.within.facts) < 1
    assert found == convergence_attack(count=200, seed=1)["convergence"]
    assert found != convergence_attack(count=200, seed=2)["convergence"]


def test_ascent_comes_nearer_to_the_edge_and_does_not_pass_it() -> None:
    start, end = (
        optimised_convergence_attack(count=30, steps=steps, seed=1)["convergence"].within
        for steps in (0, 40)
    )
    assert start.attacks == end.attacks == 30
    assert 2 * start.ratio < end.ratio < 1


@torch.no_grad()
def test_tokens_are_scaled_until_the_condition_is_just_met() -> None:
    assert (NEAREST, FARTHEST) == (0.999, 0.01)
    networks = stacks()
    wanted = torch.linspace(-2.0, math.log10(0.999), 8, dtype=torch.float64)
    for facts, log in zip(_near_one(networks, log_condition=wanted), wanted.tolist(), strict=True):
        if math.isfinite(max(COLLAPSE_BOUNDS.get("collapse-proved")().factors(facts))):
            assert condition(facts) == pytest.approx(10**log, rel=1e-9)


def test_a_look_leaves_the_networks_as_they_are() -> None:
    networks = stacks("heads-mlp", "gelu", depth=2)
    before = networks.sizes["tokens"].detach().clone()
    wanted = torch.full((8,), -0.1, dtype=torch.float64)
    _look(networks, networks.run(), log_condition=wanted)
    assert torch.equal(networks.sizes["tokens"], before)


def test_heads_and_mlps_are_among_the_networks() -> None:
    assert KINDS == ("one-head", "one-head-mlp", "heads", "heads-mlp")
    assert not any(STACK_KINDS[kind].skip or STACK_KINDS[kind].mask != "none" for kind in KINDS)


def test_a_rise_is_found_wherever_it_stands_and_beyond_float() -> None:
    facts = convergence_attack(count=1, seed=0)["convergence"].within.facts
    layers = (facts.layers[0],) * 3
    for logs, ratio in (
        ((-9.0, -10.0, -9.5, -20.0), 10**0.5),
        ((-9.0, -math.inf, -math.inf, -math.inf), 1e-300),
        ((-9.0, -math.inf, -12.0, -13.0), math.inf),
        ((-9.0, math.inf, math.nan, math.nan), math.inf),
        ((-9.0, -10.0, math.inf, math.inf), math.inf),
    ):
        case = _case(replace(facts, layers=layers, log10_composite=logs))
        assert case is not None and case.ratio == pytest.approx(ratio, rel=1e-9), logs
    for first in (-math.inf, math.nan, 9.0):  # equal tokens, no number, condition not met
        assert _case(replace(facts, layers=layers, log10_composite=(first, 0.0, 0.0, 0.0))) is None


def test_the_note_s_condition_does_not_hold_what_it_says() -> None:
    found = as_written_attack(count=320, seed=1)["convergence-as-written"]
    assert found.within.attacks == 0 and found.outside.attacks >= 1
    assert found.outside.ratio > 10
    facts = found.outside.facts
    assert facts.depth == DEEP == 40
    factor = published_factor(facts)
    assert factor is not None and factor < 0 and condition(facts) >= 1
    layer = facts.layers[0]
    gamma = max(layer.gamma[0] for layer in facts.layers)
    beta = layer.query_key[0] * math.sqrt(layer.value_output_1[0] * layer.value_output_inf[0])
    assert 10**factor == pytest.approx(4 * gamma * beta * layer.scaling)
    assert facts.log10_composite[-1] > facts.log10_composite[0] + 1
