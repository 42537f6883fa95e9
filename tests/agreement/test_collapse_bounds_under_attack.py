"""No bound on rank collapse falls where its conditions hold; the false ones fall; attacks find."""

from __future__ import annotations

import math

import pytest

from leadline.instruments.attacks import stacks as attacked_stacks
from leadline.instruments.attacks.attention import Attacked, merged
from leadline.instruments.attacks.collapse import (
    CLIMBS,
    collapse_campaign,
    optimised_collapse_attack,
    random_collapse_attack,
)
from leadline.instruments.attacks.convergence import (
    as_written_attack,
    convergence_attack,
    optimised_convergence_attack,
)
from leadline.theory import COLLAPSE_BOUNDS, StackFacts
from leadline.theory.rank_collapse.collapse_proved import CollapseProved
from leadline.theory.rank_collapse.collapse_sharp import CollapseSharp

ROUNDING = 1e-9
FALSE = "skip-as-written"
UPPER = [name for name, bound in COLLAPSE_BOUNDS.items() if bound.side == "upper"]
LOWER = [name for name, bound in COLLAPSE_BOUNDS.items() if bound.side == "lower"]
CAMPAIGN = {name for name in (*UPPER, *LOWER) if name != FALSE}


def stands(result: dict[str, Attacked]) -> None:
    """Assert that no bound is violated where it applies."""
    fallen = {
        name: (one.within.ratio, one.within.facts)
        for name, one in result.items()
        if not one.within.ratio <= 1 + ROUNDING
    }
    assert not fallen


def met(result: dict[str, Attacked]) -> int:
    """How many attacks the bound met that met the fewest."""
    return min(result[name].within.attacks for name in CAMPAIGN)


@pytest.mark.slow
def test_every_bound_survives_five_thousand_random_attacks() -> None:
    result = merged(
        [
            random_collapse_attack("one-head", count=2500, seed=1, bounds=UPPER),
            random_collapse_attack("one-head-mlp", count=2500, seed=2, bounds=UPPER),
            random_collapse_attack("heads", count=350, seed=3, bounds=UPPER),
            random_collapse_attack("heads-mlp", count=350, seed=4, bounds=UPPER),
            random_collapse_attack("skip-aligned", count=2500, seed=5, bounds=LOWER),
            random_collapse_attack("skip-aligned-mlp", count=2500, seed=6, bounds=LOWER),
        ]
    )
    stands(result)
    assert met(result) >= 5000
    # Two tokens of width one attain the smallest constant, and a skip that adds nothing its bound.
    assert result["collapse-sharp"].within.ratio > 0.999
    assert result["skip-keeps-residual"].within.ratio > 0.999
    assert result["collapse-published"].within.ratio == pytest.approx(math.sqrt(2) / 8, rel=1e-3)


def test_every_bound_survives_two_hundred_optimised_attacks() -> None:
    result = merged(
        optimised_collapse_attack(kind, count=200 // share, steps=8, seed=place, goal=goal)
        for place, (kind, goal, share) in enumerate(CLIMBS)
    )
    stands(result)
    assert met(result) >= 200


def test_the_true_condition_of_convergence_survives_as_many() -> None:
    random = convergence_attack(count=5000, seed=1)
    optimised = optimised_convergence_attack(count=200, steps=8, seed=2)
    for result, least in ((random, 5000), (optimised, 200)):
        stands(result)
        assert result["convergence"].within.attacks == least
        # c of two tokens is sqrt(2) above what they attain: the edge is not far.
        assert 0.55 < result["convergence"].within.ratio < 1


@pytest.mark.slow
def test_every_bound_survives_many_more_attacks() -> None:
    jobs = collapse_campaign(attacks=20_000, optimised=600, seed=7)
    random = merged(job.run() for job in jobs if not job.optimised)
    optimised = merged(job.run() for job in jobs if job.optimised)
    stands(random)
    stands(optimised)
    assert met(random) >= 20_000
    assert met(optimised) >= 600
    assert optimised["collapse-sharp"].within.ratio > 0.99


# --- attacks find what is there ---------------------------------------------------------------


def weaker(monkeypatch: pytest.MonkeyPatch, bound: type[CollapseProved], share: float) -> None:
    """Make the constant of a bound smaller."""
    right = bound.log10_gamma

    def wrong(self: CollapseProved, facts: StackFacts, layer) -> float:
        return right(self, facts, layer) + math.log10(share)

    monkeypatch.setattr(bound, "log10_gamma", wrong)


def test_a_twentieth_of_the_proved_constant_is_found_to_be_too_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weaker(monkeypatch, CollapseProved, 0.05)
    names = ["collapse-proved", "collapse-one-layer"]
    for kind in ("one-head", "one-head-mlp", "heads", "heads-mlp"):
        found = random_collapse_attack(kind, count=100, seed=1, bounds=names)
        assert all(found[name].within.ratio > 1.5 for name in names)


def test_the_smallest_constant_cannot_be_a_thousandth_smaller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weaker(monkeypatch, CollapseSharp, 0.999)
    found = random_collapse_attack("one-head", count=1000, seed=1, bounds=["collapse-sharp"])
    assert found["collapse-sharp"].within.ratio > 1 + ROUNDING


def test_a_lipschitz_constant_of_one_for_gelu_is_found_to_be_too_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The slope of GELU at the square root of 2 is 1.129, and networks stand there."""
    monkeypatch.setattr(attacked_stacks, "lip", lambda _act: 1.0)
    found = random_collapse_attack("one-head-mlp", count=1000, seed=0, bounds=["collapse-sharp"])
    assert found["collapse-sharp"].within.ratio > 1.1


def test_ascent_goes_beyond_what_it_starts_from() -> None:
    start, end = (
        optimised_collapse_attack("heads-mlp", count=25, steps=steps, seed=3)["collapse-proved"]
        for steps in (0, 60)
    )
    assert end.within.ratio > 1.5 * start.within.ratio


# --- the false ones ---------------------------------------------------------------------------


def failing(name: str, facts: StackFacts) -> list[str]:
    return [c.assumption for c in COLLAPSE_BOUNDS.get(name)().conditions(facts) if not c.holds]


def test_updates_orthogonal_in_the_frobenius_product_may_take_the_residual_away() -> None:
    found = random_collapse_attack("skip-orthogonal", count=200, seed=1, bounds=LOWER)
    case = found[FALSE].outside
    assert found[FALSE].within.attacks == 0
    assert case.ratio > 2
    assert failing(FALSE, case.facts) == ["the statement is true"]
    assert max(layer.overlap for layer in case.facts.layers) < 1e-6
    assert min(layer.alignment for layer in case.facts.layers) < 0
    logs = case.facts.log10_frobenius
    assert 10 ** (logs[0] - min(logs)) == pytest.approx(case.ratio, rel=1e-9)


def test_the_note_s_condition_does_not_make_residuals_vanish() -> None:
    found = as_written_attack(count=256, seed=1)["convergence-as-written"].outside
    assert found.ratio > 1e6
    assert found.facts.log10_composite[-1] == found.norm


@pytest.mark.parametrize("kind", ["causal", "skip"])
def test_the_cubic_bounds_fall_with_a_mask_or_a_skip(kind: str) -> None:
    found = random_collapse_attack(kind, count=100, seed=1, bounds=UPPER)
    for name in UPPER:
        assert found[name].within.attacks == 0
        assert found[name].outside.ratio > 10
        assert len(failing(name, found[name].outside.facts)) == 1
