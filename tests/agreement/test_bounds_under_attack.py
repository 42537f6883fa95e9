"""No bound of attention norms falls where its conditions hold; the note's falls where they do not."""

from __future__ import annotations

import math

import pytest
import torch

from leadline.errors import UnknownName
from leadline.instruments.attacks.attention import (
    Attacked,
    climb,
    merged,
    optimised_attack,
    random_attack,
)
from leadline.instruments.attacks.heads import KINDS, DrawnHeads
from leadline.theory import BOUNDS

ROUNDING = 1e-9
NOTE = "pre-norm-as-written"


def stands(result: dict[str, Attacked]) -> None:
    """Assert that no bound is violated where it applies."""
    fallen = {
        name: (one.within.ratio, one.within.norm, one.within.facts)
        for name, one in result.items()
        if not one.within.ratio <= 1 + ROUNDING
    }
    assert not fallen


def count_of(kind: str) -> int:
    """Two kinds meet the note's assumptions, more meet those of every other bound."""
    return 520 if kind in ("as-the-note", "as-the-note-rotary") else 300


def test_every_bound_survives_a_thousand_random_attacks() -> None:
    result = merged(random_attack(kind, count=count_of(kind), seed=1) for kind in KINDS)
    stands(result)
    assert {
        name: one.within.attacks for name, one in result.items() if one.within.attacks < 1000
    } == {}
    assert sorted(result) == BOUNDS.names()


def test_every_bound_survives_optimised_attacks_that_come_close() -> None:
    result = merged(
        [
            *(optimised_attack(kind, steps=50, seed=2) for kind in KINDS),
            *(optimised_attack(kind, steps=50, seed=3, goal="fall") for kind in ("open", "random")),
            *(
                optimised_attack(kind, steps=50, seed=4, goal="product")
                for kind in ("open", "causal")
            ),
        ]
    )
    stands(result)
    assert all(one.within.ratio > 0.995 for one in result.values())
    assert all(one.within.attacks >= 48 for one in result.values())


@pytest.mark.slow
def test_every_bound_survives_thousands_of_random_and_optimised_attacks() -> None:
    random = merged(
        random_attack(kind, count=2000, seed=100 * seed) for kind in KINDS for seed in (1, 2)
    )
    stands(random)
    assert min(one.within.attacks for one in random.values()) >= 4000
    ascents = [
        optimised_attack(kind, steps=150, seed=seed, starts=128, n=n)
        for kind in KINDS
        for seed, n in enumerate((2, 3, 6, 12))
    ]
    falls = [
        optimised_attack(kind, steps=150, seed=7, starts=128, goal="fall")
        for kind in KINDS
        if not KINDS[kind].sink
    ]
    products = [
        optimised_attack(kind, steps=150, seed=8, starts=128, goal="product")
        for kind in KINDS
        if not KINDS[kind].cross
    ]
    optimised = merged([*ascents, *falls, *products])
    stands(optimised)
    assert min(one.within.attacks for one in optimised.values()) >= 1000


@pytest.mark.parametrize(
    ("kind", "seed", "assumption"),
    [
        ("as-the-note-causal", 5, "every query sees every key"),
        ("as-the-note-shifted", 1, "the norm has no bias"),
        ("as-the-note-scaled-by-head", 5, "the logits are scaled by 1/√d"),
    ],
)
def test_ascent_violates_the_note_s_bound_as_soon_as_one_assumption_fails(
    kind: str, seed: int, assumption: str
) -> None:
    attacked = optimised_attack(kind, steps=60, seed=seed, starts=24, n=16)[NOTE]
    assert attacked.within.attacks == 0
    assert attacked.outside.ratio > 1.1
    facts = attacked.outside.facts
    assert facts is not None
    failing = [c.assumption for c in BOUNDS.get(NOTE)().conditions(facts) if not c.holds]
    assert failing == [assumption]


def heads_of(kind: str, *, batch: int, n: int, seed: int, **sizes: float) -> DrawnHeads:
    """Heads of a kind with some of their sizes set."""
    heads = DrawnHeads(KINDS[kind], batch, n, generator=torch.Generator().manual_seed(seed))
    for name, size in sizes.items():
        assert name in heads.sizes
        heads.sizes[name] = torch.full((batch,), size, dtype=torch.float64)
    return heads


def test_ascent_on_weights_and_inputs_nearly_reaches_the_causal_bound() -> None:
    """At a span where the bound says something: well above 1 and below the root of n."""
    heads = heads_of(
        "causal", batch=32, n=8, seed=0, gain=1.0, shift=2.0, query_weight=0.6, key_weight=0.3,
        query_bias=1.0, key_bias=1.0,
    )  # fmt: skip
    found = climb(heads, steps=200)["causal"].within
    bound = found.norm / found.ratio
    assert 1.5 < bound < 2.6
    assert 0.97 < found.ratio < 1


def test_ascent_on_logits_reaches_the_sharp_bound() -> None:
    """n = 8, D = 3: equal rows of one key at 3 and seven at 0 have the norm 2.1156."""
    heads = heads_of("logits", batch=8, n=8, seed=0, span=3.0)
    found = climb(heads, steps=300)["bidirectional-measured"].within
    assert found.norm == pytest.approx(2.1156, abs=2e-3)
    assert 0.999 < found.ratio <= 1 + ROUNDING


def test_falling_lowers_and_rising_raises_the_norms() -> None:
    rise = optimised_attack("logits", steps=60, seed=1)["sqrt-queries"].within.ratio
    start = optimised_attack("logits", steps=0, seed=1)["sqrt-queries"].within.ratio
    assert rise > 1.2 * start
    fall = optimised_attack("logits", steps=60, seed=1, goal="fall")["one"].within.ratio
    assert fall > optimised_attack("logits", steps=0, seed=1)["one"].within.ratio
    product = optimised_attack("logits", steps=60, seed=1, goal="product")["product"].within
    assert product.ratio > optimised_attack("logits", steps=0, seed=1)["product"].within.ratio
    assert product.attacks == 24 // 3


def test_attacks_repeat_by_seed_and_differ_between_seeds() -> None:
    first = random_attack("open", count=9, seed=1)
    assert first == random_attack("open", count=9, seed=1)
    assert first != random_attack("open", count=9, seed=2)
    assert first["sqrt-queries"].within.attacks == 9


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(UnknownName, match="'opne'"):
        random_attack("opne", count=1, seed=0)


@pytest.mark.parametrize("kind", list(KINDS))
@torch.no_grad()
def test_the_facts_of_attacked_heads_are_true_of_their_tensors(kind: str) -> None:
    heads = DrawnHeads(KINDS[kind], 5, 4, generator=torch.Generator().manual_seed(3))
    weights, logits = heads.attention()
    told = heads.facts(weights, logits)
    for i, facts in enumerate(told):
        seen = weights[i] > 0
        assert tuple(seen.sum(-1).tolist()) == tuple(facts.row_counts())
        if facts.mask == "causal":
            assert bool((seen == torch.ones(4, 4).tril().bool()).all())
        rows = weights[i].sum(-1)
        if facts.stochastic:
            assert rows.tolist() == pytest.approx([1.0] * facts.queries, rel=1e-14)
        else:
            assert max(rows.tolist()) < 1
        assert facts.column_sum == pytest.approx(float(weights[i].sum(0).max()), rel=1e-12)
        # Ratios within a row of weights are what the logits' range says.
        row = [float(r[r > 0].max() / r[r > 0].min()) for r in weights[i]]
        assert facts.logit_span == pytest.approx(math.log(max(row)), abs=1e-9)
        if facts.gain is None:
            continue
        scale = facts.width if KINDS[kind].scaled_by_width else facts.head_width
        assert facts.scaling == pytest.approx(scale**-0.5, rel=1e-15)
        for name, size in (("query_weight", facts.query_weight), ("key_weight", facts.key_weight)):
            top = float(torch.linalg.svdvals(heads._matrix(name)[i])[0])
            assert top == pytest.approx(size, rel=1e-12)
        query, key = heads._queries_and_keys()
        reach = facts.gain * math.sqrt(facts.width) + facts.shift
        allowed_query = facts.query_radius or facts.query_weight * reach + facts.query_bias
        allowed_key = facts.key_radius or facts.key_weight * reach + facts.key_bias
        assert float(query[i].norm(dim=-1).max()) <= allowed_query * (1 + 1e-12)
        assert float(key[i].norm(dim=-1).max()) <= allowed_key * (1 + 1e-12)
