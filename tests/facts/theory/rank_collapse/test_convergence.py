"""When tokens become equal: the note's condition, shown false, and the true one."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from leadline.theory import StackFacts
from leadline.theory.rank_collapse.collapse_proved import CollapseProved
from leadline.theory.rank_collapse.collapse_published import published_factor
from leadline.theory.rank_collapse.convergence import converges, converges_as_written
from tests.synthetic_collapse import facts_of, forward, random_layer, two_tokens


def two_token_facts(a: float, depth: int, *, tau: float = 0.3, w: float = 1.05) -> StackFacts:
    layers = [two_tokens(tau, w)] * depth
    return facts_of(forward(np.array([[a], [-a]]), layers), layers)


def test_the_notes_condition_holds_and_the_residual_grows() -> None:
    facts = two_token_facts(4.0, 40)
    factor = published_factor(facts)
    assert factor is not None and 10**factor == pytest.approx(0.89, abs=5e-3)
    assert converges_as_written(facts) is True
    assert (np.diff(facts.log10_composite) > 0).all()
    # a = r / sqrt(2) after 40 layers
    assert 10 ** facts.log10_composite[-1] / math.sqrt(2) == pytest.approx(28, abs=0.5)
    assert converges(facts) is False and converges(facts, constant="proved") is False


def test_a_residual_below_one_is_not_enough_either() -> None:
    facts = two_token_facts(0.69, 40, tau=30.0)
    assert facts.log10_composite[0] < 0 < facts.log10_composite[-1]
    assert converges(facts) is False and converges_as_written(facts) is False


@pytest.mark.parametrize("constant", ["published", "proved"])
def test_where_the_true_condition_holds_the_residual_falls_double_exponentially(
    constant: str,
) -> None:
    facts = two_token_facts(0.7, 4)
    assert converges(facts, constant=constant) is True  # type: ignore[arg-type]
    logs = facts.log10_composite
    assert logs[4] - logs[3] < 2 * (logs[3] - logs[2]) < 0


def test_the_true_condition_is_on_the_square_of_the_residual() -> None:
    # c r^2 with c = 4 gamma beta = 2 sqrt(2) tau w and r = sqrt(2) a, and 1/4 of it as proved (n = 2)
    published = 1 / math.sqrt(2 * 2 * math.sqrt(2) * 0.3 * 1.05)
    for share, expected in ((0.999, True), (1.001, False)):
        facts = two_token_facts(published * share, 1)
        assert converges(facts) is expected
        assert converges(facts, constant="proved") is True
        assert converges(two_token_facts(2 * published * share, 1), constant="proved") is expected


def test_every_random_network_that_meets_the_condition_collapses() -> None:
    rng = np.random.default_rng(2)
    met = 0
    for _ in range(200):
        layers = [random_layer(rng, width=3, heads=2, query_key=0.05, value=0.3) for _ in range(3)]
        facts = facts_of(forward(rng.normal(size=(4, 3)), layers), layers)
        if converges(facts, constant="proved"):
            met += 1
            assert list(facts.log10_composite) == sorted(facts.log10_composite, reverse=True)
    assert met > 20


def test_with_one_head_the_proved_constant_is_never_above_the_published_one() -> None:
    rng = np.random.default_rng(4)
    largest = -math.inf
    for act in ("", "relu") * 50:
        layers = [random_layer(rng, width=3, act=act) for _ in range(2)]
        facts = facts_of(forward(rng.normal(size=(4, 3)), layers), layers)
        published = published_factor(facts)
        assert published is not None
        largest = max(largest, max(CollapseProved().factors(facts)) - published)
    assert math.log10(0.3) < largest <= math.log10(0.375) + 1e-12  # 2 (1 - 1/4) / 4


def test_a_number_that_is_missing_is_none() -> None:
    facts = two_token_facts(1.0, 1)
    assert converges(replace(facts, log10_composite=())) is None
    blind = replace(facts, layers=(replace(facts.layers[0], gamma=(), joint_gamma=None),))
    assert converges_as_written(blind) is None
    assert converges(blind) is None and converges(blind, constant="proved") is None
    assert converges(replace(facts, layers=(), log10_composite=(0.0,)), constant="proved") is None


def test_equal_tokens_have_converged() -> None:
    facts = replace(two_token_facts(1.0, 1), log10_composite=(-math.inf, -math.inf))
    assert converges(facts) is True
