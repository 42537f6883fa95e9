"""What every probe says, against numbers worked out by hand on tensors small enough to see."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from leadline.anatomy import Stack
from leadline.instruments.passes.probe import At, Each, PerToken, Single
from leadline.instruments.passes.probes.gradient import GradientProbe
from leadline.instruments.passes.probes.influence import InfluenceProbe
from leadline.instruments.passes.probes.lanes import LanesProbe
from leadline.instruments.passes.probes.memory import MemoryProbe
from leadline.instruments.passes.probes.rank import RankProbe
from leadline.instruments.passes.probes.recall import RecallProbe
from leadline.instruments.passes.probes.tokens import TokensProbe
from leadline.instruments.passes.probes.update import UpdateProbe
from leadline.numerics import reference
from leadline.numerics.tokens import Tokens
from leadline.record import Site


def _at(lanes: int = 1, sublayer: int | None = None) -> At:
    return At(Stack("decoder", (), 4, lanes=lanes), Site("decoder", 1, sublayer))


def _draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _named(results: Any) -> dict[str, Any]:
    return {r.quantity.name: r for r in results}


def test_influence_is_one_minus_the_cosine_of_before_and_after() -> None:
    # Turned by nothing, by a right angle, by half a turn, by 60 degrees.
    before = torch.tensor([[[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [2.0, 0.0]]])
    after = torch.tensor([[[5.0, 0.0], [0.0, 3.0], [-1.0, 0.0], [1.0, math.sqrt(3.0)]]])
    (result,) = InfluenceProbe().block(_at(), Tokens(before), Tokens(after))
    assert isinstance(result, PerToken)
    assert result.values[0].tolist() == pytest.approx([0.0, 1.0, 2.0, 0.5], abs=1e-6)


def test_memory_is_the_cosine_with_what_entered() -> None:
    start = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    now = torch.tensor([[[3.0, 4.0], [0.0, -2.0]]])
    (result,) = MemoryProbe().stream(_at(), Tokens(now), Tokens(start))
    assert result.values[0].tolist() == pytest.approx([0.6, -1.0])


def test_lanes_are_told_apart() -> None:
    # Three lanes of width two: along x, along x and longer, along y.
    x = torch.tensor([[[3.0, 0.0, 5.0, 0.0, 0.0, 2.0]]])
    *norms, cosine = LanesProbe().stream(_at(lanes=3), Tokens(x), Tokens(x))
    assert [(r.site.lane, float(r.values)) for r in norms] == [(1, 3.0), (2, 5.0), (3, 2.0)]
    # Of the three pairs one has cosine 1, two have cosine 0.
    assert float(cosine.values) == pytest.approx(1 / 3)


def test_one_lane_says_nothing() -> None:
    x = Tokens(_draw(1, 2, 6))
    assert list(LanesProbe().stream(_at(), x, x)) == []
    assert list(LanesProbe().stream(_at(lanes=2, sublayer=1), x, x)) == []


def test_a_write_onto_nothing_has_no_share() -> None:
    u, x = torch.ones(1, 2, 4), torch.ones(1, 2, 4)
    x[0, 0] = 0
    found = _named(UpdateProbe().update(_at(), Tokens(u), Tokens(x)))
    ratio = found["update.ratio"].values[0].tolist()
    assert math.isnan(ratio[0]) and ratio[1] == 1.0


def test_the_total_gradient_leaves_padding_out() -> None:
    g = torch.tensor([[[3.0, 4.0], [0.0, 12.0], [100.0, 0.0]]])
    mask = torch.tensor([[True, True, False]])
    total, _ = GradientProbe().gradient(_at(), Tokens(g, mask))
    assert isinstance(total, Single) and float(total.value) == pytest.approx(13.0)
    whole, _ = GradientProbe().gradient(_at(), Tokens(g))
    assert float(whole.value) == pytest.approx(math.sqrt(169 + 10_000))


@pytest.mark.parametrize("tokens", [1, 2])
def test_fewer_than_three_tokens_have_no_rank(tokens: int) -> None:
    x = Tokens(_draw(2, tokens, 4))
    assert list(RankProbe().stream(_at(), x, x)) == []


def test_the_rank_is_the_mean_over_the_examples() -> None:
    x = _draw(3, 9, 5)
    found = _named(RankProbe().stream(_at(), Tokens(x), Tokens(x)))
    stable = sum(reference.stable_rank(e[1:]) for e in x) / 3
    entropy = sum(reference.entropy_rank(e[1:]) for e in x) / 3
    assert float(found["tokens.stable_rank"].value) == pytest.approx(stable, rel=1e-5)
    assert float(found["tokens.entropy_rank"].value) == pytest.approx(entropy, rel=1e-5)
    assert found["tokens.stable_rank"].statistic == "mean_without_first"


def test_a_single_token_differs_from_nothing() -> None:
    x = Tokens(_draw(2, 1, 4))
    assert list(TokensProbe().stream(_at(), x, x)) == []
    pair = Tokens(_draw(2, 2, 4))
    assert all(isinstance(r, Each) for r in TokensProbe().stream(_at(), pair, pair))


def test_recall_leaves_padding_out() -> None:
    x, start = _draw(2, 12, 4, seed=1), _draw(2, 12, 4, seed=2)
    mask = torch.ones(2, 12, dtype=torch.bool)
    mask[0, 8:] = mask[1, :3] = False
    (result,) = RecallProbe(ridge=0.1, seed=3).stream(_at(), Tokens(x, mask), Tokens(start, mask))
    expected = reference.held_out_r2(x[mask], start[mask], ridge=0.1, seed=3)
    assert float(result.value) == pytest.approx(expected, rel=1e-5)


def test_recall_takes_its_ridge_and_seed_and_has_a_gentle_default() -> None:
    x, start = _draw(2, 16, 4, seed=1), _draw(2, 16, 4, seed=2)
    flat = x.flatten(0, 1), start.flatten(0, 1)
    for options, ridge, seed in (
        ({}, 1e-3, 0),
        ({"ridge": 10.0}, 10.0, 0),
        ({"seed": 5}, 1e-3, 5),
    ):
        (result,) = RecallProbe(**options).stream(_at(), Tokens(x), Tokens(start))  # pyright: ignore
        expected = reference.held_out_r2(*flat, ridge=ridge, seed=seed)
        assert float(result.value) == pytest.approx(expected, rel=1e-5)
