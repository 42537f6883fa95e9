"""Bounds on rank collapse: values by hand, conditions in words, and networks that come close."""

from __future__ import annotations

import inspect
import math
from dataclasses import replace

import numpy as np
import pytest

from leadline.theory import COLLAPSE_BOUNDS, CollapseBound, LayerFacts, StackFacts
from leadline.theory.rank_collapse.log import log10, product, tower
from tests.synthetic_collapse import (
    Head,
    Layer,
    Matrix,
    composite,
    differences,
    facts_of,
    forward,
    gammas,
    inf,
    one,
    random_layer,
    res,
    softmax,
    two_tokens,
)

CUBIC = [
    "collapse-from-weights", "collapse-one-layer", "collapse-proved", "collapse-published",
    "collapse-sharp", "collapse-smallest",
]  # fmt: skip
NAMES = sorted(
    [*CUBIC, "collapse-causal-rate", "collapse-cubic-law", "skip-as-written", "skip-keeps-residual"]
)


def bound(name: str) -> CollapseBound:
    return COLLAPSE_BOUNDS.get(name)()


def reasons(name: str, facts: StackFacts) -> list[str]:
    return [c.because for c in bound(name).conditions(facts) if not c.holds]


def values(name: str, facts: StackFacts) -> tuple[float, ...]:
    found = bound(name).log10_values(facts)
    assert found is not None
    return found


def by_hand(**changes: object) -> StackFacts:
    """Two layers of two heads, four tokens, numbers that are powers of two and ten."""
    layer = LayerFacts(
        query_key=(3.0, 1.0),
        value_output_1=(2.0, 8.0),
        value_output_inf=(8.0, 0.5),
        scaling=0.5,
        gamma=(0.25, 0.5),
        joint_gamma=0.4,
        lipschitz=5.0,
    )
    facts = StackFacts(
        tokens=4,
        layers=(layer, replace(layer, lipschitz=10.0, joint_gamma=0.2)),
        log10_composite=(-1.0, -4.0, -12.0),
        log10_smallest=(-2.0, -5.0, -13.0),
        log10_frobenius=(-1.5, -4.5, -12.5),
    )
    return replace(facts, **changes)  # type: ignore[arg-type]


def test_the_catalog_holds_the_ten_statements() -> None:
    assert COLLAPSE_BOUNDS.names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_statement_says_what_it_is_and_how_it_is_proved(name: str) -> None:
    stated = bound(name)
    assert stated.title and stated.statement and stated.source
    text = inspect.getdoc(type(stated)) or ""
    if name not in ("skip-as-written", "collapse-one-layer"):
        assert "Assumptions: " in text and "Proof" in text
    laws = ("collapse-causal-rate", "collapse-cubic-law")
    expected = "law" if name in laws else "lower" if name.startswith("skip") else "upper"
    assert stated.side == expected
    if name in CUBIC:
        assert stated.measure == ("smallest" if name == "collapse-smallest" else "composite")
    else:
        assert stated.measure == "frobenius"


def test_the_proved_bound_is_computed_as_by_hand() -> None:
    # w = sqrt(8 * 8) = 8, sum |W_QK| = 4, n = 4: 2 (1 - 1/4) = 1.5
    first = 1.5 * 0.4 * 5 * 0.5 * 4 * 8
    second = 1.5 * 0.2 * 10 * 0.5 * 4 * 8
    after = math.log10(first) - 3
    expected = (-1.0, after, math.log10(second) + 3 * after)
    assert values("collapse-proved", by_hand()) == pytest.approx(expected, abs=1e-12)
    assert values("collapse-one-layer", by_hand()) == pytest.approx(
        (-1.0, after, math.log10(second) - 12), abs=1e-12
    )


def test_the_sharp_bound_is_smaller_by_the_root_of_two_per_layer() -> None:
    proved, sharp = (values(f"collapse-{name}", by_hand()) for name in ("proved", "sharp"))
    root = math.log10(math.sqrt(2))
    assert proved[1] - sharp[1] == pytest.approx(root)
    assert proved[2] - sharp[2] == pytest.approx(4 * root)


def test_from_weights_takes_half_the_root_of_n_for_gamma() -> None:
    layer = 1.5 * (math.sqrt(4) / 2) * 5 * 0.5 * 4 * 8
    assert values("collapse-from-weights", by_hand())[1] == pytest.approx(math.log10(layer) - 3)
    blind = replace(by_hand().layers[0], gamma=(), joint_gamma=None)
    facts = by_hand(layers=(blind, blind))
    assert values("collapse-from-weights", facts)[1] == pytest.approx(math.log10(layer) - 3)
    assert bound("collapse-proved").log10_values(facts) is None


def test_the_smallest_residual_takes_the_better_of_two_gammas() -> None:
    rest = math.log10(5 * 0.5 * 4 * 8)
    # sqrt(4 / 2) = 1.414 against 4 (3/4)^2 0.4 = 0.9; without gamma 4 (3/4)^2 (sqrt(4) / 2) = 2.25
    assert values("collapse-smallest", by_hand())[:2] == pytest.approx(
        (-2.0, math.log10(0.9) + rest - 6)
    )
    blind = replace(by_hand().layers[0], joint_gamma=None)
    assert values("collapse-smallest", by_hand(layers=(blind, blind)))[1] == pytest.approx(
        math.log10(math.sqrt(2.0)) + rest - 6
    )


def test_two_tokens_without_a_gamma_take_the_half_root_of_two() -> None:
    blind = replace(by_hand().layers[0], joint_gamma=None)
    facts = by_hand(tokens=2, layers=(blind, blind))
    # sqrt(2 / 2) = 1 against 4 (1/2)^2 (sqrt(2) / 2)
    assert values("collapse-smallest", facts)[1] == pytest.approx(
        math.log10(math.sqrt(2) / 2) + math.log10(5 * 0.5 * 4 * 8) - 6
    )


def test_the_published_bound_takes_every_number_at_its_largest() -> None:
    beta = 3.0 * math.sqrt(2.0 * 8.0)  # the other head has 1 * sqrt(8 / 2) = 2
    factor = math.log10(4 * 0.5 * beta * 2 * 10.0 * 0.5)
    expected = (-1.0, factor - 3.0, 4 * factor - 9.0)
    assert values("collapse-published", by_hand()) == pytest.approx(expected)


@pytest.mark.parametrize(("layers", "exponent"), [(1, 1), (2, 4), (3, 13), (4, 40)])
def test_the_exponents_of_the_published_bound(layers: int, exponent: int) -> None:
    assert (3**layers - 1) // 2 == exponent
    assert tower(1.0, 0.0, layers) == exponent
    assert tower(0.0, -1.0, layers) == -(3**layers)
    step = 0.0
    for _ in range(layers):
        step = 1.0 + 3.0 * step
    assert step == exponent


def test_forty_cubes_of_a_tenth() -> None:
    assert 10 ** math.floor(math.log10(-tower(0.0, -1.0, 40))) == 10**19


@pytest.mark.parametrize("n", [2, 3, 10])
def test_taking_the_mean_away_has_norm_two_less_two_nths(n: int) -> None:
    centring = np.eye(n) - 1 / n
    assert one(centring) == pytest.approx(2 * (1 - 1 / n))
    assert inf(centring) == pytest.approx(2 * (1 - 1 / n))


def test_a_softmax_moves_by_at_most_twice_the_tanh_of_a_quarter_of_the_range() -> None:
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(3000):
        a, e = rng.normal(size=(2, 3)) * 10 ** rng.uniform(-1, 1.5)
        moved = np.abs(softmax((a + e)[None]) - softmax(a[None])).sum()
        ratios.append(moved / (2 * math.tanh((e.max() - e.min()) / 4)))
    assert 0.99 < max(ratios) <= 1 + 1e-12


def test_the_laws_and_the_lower_bound_by_hand() -> None:
    layer = replace(by_hand().layers[0], diagonal=0.5, value_gain=0.2, cubic_law=-7.0)
    facts = by_hand(layers=(layer, replace(layer, cubic_law=-20.0)))
    assert values("collapse-cubic-law", facts) == (-1.5, -7.0, -20.0)
    assert values("collapse-causal-rate", facts) == pytest.approx((-1.5, -2.5, -5.5))
    for name in ("skip-keeps-residual", "skip-as-written"):
        assert values(name, facts) == (-1.5, -1.5, -1.5)


@pytest.mark.parametrize("name", CUBIC)
def test_a_thousand_layers_saturate_and_do_not_raise(name: str) -> None:
    deep = by_hand(
        layers=(by_hand().layers[0],) * 1000,
        log10_composite=(-10.0,) * 1001,
        log10_smallest=(-10.0,) * 1001,
    )
    wild = by_hand(
        layers=(by_hand().layers[0],) * 1000,
        log10_composite=(10.0,) * 1001,
        log10_smallest=(10.0,) * 1001,
    )
    if name == "collapse-one-layer":
        assert all(math.isfinite(value) for value in values(name, deep))
    else:
        assert values(name, deep)[-1] == -math.inf
        assert values(name, wild)[-1] == math.inf
        assert not any(math.isnan(value) for value in (*values(name, deep), *values(name, wild)))


@pytest.mark.parametrize("name", CUBIC)
def test_a_layer_of_zero_weights_leaves_nothing_however_large_the_bound_before(name: str) -> None:
    dead = replace(by_hand().layers[0], value_output_1=(0.0, 0.0), value_output_inf=(0.0, 0.0))
    facts = by_hand(
        layers=(*(by_hand().layers[0],) * 700, dead),
        log10_composite=(10.0,) * 702,
        log10_smallest=(10.0,) * 702,
    )
    last = values(name, facts)[-1]
    assert last == (math.inf if name == "collapse-published" else -math.inf)


def test_residuals_of_zero_stay_zero() -> None:
    facts = by_hand(log10_composite=(-math.inf,) * 3)
    assert values("collapse-proved", facts) == (-math.inf,) * 3
    assert values("collapse-published", facts) == (-math.inf,) * 3


def test_one_token_has_no_residual() -> None:
    facts = by_hand(tokens=1, log10_composite=(-math.inf, -math.inf, -math.inf))
    assert values("collapse-proved", facts)[1:] == (-math.inf, -math.inf)


def test_logarithms_of_what_is_no_size() -> None:
    assert log10(0.0) == -math.inf and log10(math.inf) == math.inf
    assert math.isnan(log10(-1.0)) and math.isnan(log10(math.nan))
    assert product(math.inf, -math.inf) == -math.inf
    assert product(1e308, 1e308) == math.inf
    assert math.isnan(product(math.nan, -math.inf))


def test_a_balanced_tower_stands_still_at_any_height() -> None:
    assert tower(2.0, -1.0, 5000) == -1.0
    assert tower(-math.inf, 3.0, 1) == -math.inf
    assert tower(math.inf, 3.0, 1) == math.inf
    assert tower(math.inf, 3.0, 0) == 3.0
    assert tower(0.0, -1.0, 646) == -(3.0**646) and tower(0.0, -1.0, 647) == -math.inf


@pytest.mark.parametrize(
    "change",
    [
        {"query_key": ()}, {"value_output_1": ()}, {"value_output_inf": (1.0,)}, {"scaling": None},
        {"lipschitz": None}, {"query_key": (math.nan, 1.0)}, {"value_output_1": (1.0, math.nan)},
        {"scaling": math.nan},
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", CUBIC)
def test_a_missing_number_gives_no_value_and_does_not_apply(name: str, change: dict) -> None:
    first, second = by_hand().layers
    facts = by_hand(layers=(first, replace(second, **change)))
    assert bound(name).log10_values(facts) is None
    assert not bound(name).applies(facts)


@pytest.mark.parametrize("change", [{"gamma": ()}, {"gamma": (0.1, math.nan)}])
def test_the_published_bound_needs_every_gamma(change: dict) -> None:
    first, second = by_hand().layers
    facts = by_hand(layers=(first, replace(second, **change)))
    assert bound("collapse-published").log10_values(facts) is None
    assert bound("collapse-proved").log10_values(facts) is not None


@pytest.mark.parametrize("name", NAMES)
def test_no_residual_no_value(name: str) -> None:
    facts = by_hand(
        log10_composite=(), log10_smallest=(-1.0, math.nan, -1.0), log10_frobenius=(1.0,)
    )
    assert bound(name).log10_values(facts) is None


def test_what_the_cubic_bounds_assume_is_told_where_it_fails() -> None:
    assert reasons("collapse-proved", by_hand()) == []
    broken = by_hand(
        mask="causal", skip=True, norm=True, turned=True, plain=False, stochastic=False, layered=False,
        layers=(replace(by_hand().layers[0], lipschitz=None),),
    )  # fmt: skip
    told = [
        "the mask is causal",
        "there is a skip connection",
        "there is a norm",
        "a layer is not one self-attention, then at most one MLP",
        "positions enter the logits",
        "the logits have a soft cap, or queries and keys are normed",
        "rows do not sum to one",
        "the MLP has none that is known",
    ]
    for name in CUBIC:
        found = reasons(name, broken)
        assert found[:8] == told
        assert len(found) == (9 if name == "collapse-published" else 8)
    assert reasons("collapse-proved", by_hand(mask="other")) == ["there is a mask"]


def test_positions_that_were_not_found_are_told_as_unknown() -> None:
    for name in (*CUBIC, "collapse-cubic-law"):
        found = reasons(name, by_hand(turned=None))
        assert (
            "where queries and keys come from was not found, so it is not known whether positions "
            "enter the logits"
        ) in found
        assert "positions enter the logits" not in found


@pytest.mark.parametrize("name", ["collapse-published", "collapse-causal-rate"])
def test_heads_are_counted_by_what_is_known_of_them(name: str) -> None:
    layer = LayerFacts(diagonal=0.5, value_gain=1.0)

    def told(*layers: LayerFacts) -> str:
        found = reasons(name, by_hand(layers=layers, mask="causal"))
        return next((one for one in found if "heads" in one), "")

    assert told(layer) == "the weights of its heads are not known"
    assert told(replace(layer, value_output_1=(1.0,)), layer).startswith("the weights of its heads")
    assert told(replace(layer, value_output_1=(1.0,))) == ""
    for known in ("query_key", "value_output_1", "value_output_inf", "gamma"):
        assert told(replace(layer, **{known: (1.0, 2.0, 3.0)})).startswith("there are 3 heads, and")


def test_the_published_bound_is_proved_for_one_head_only() -> None:
    (why,) = reasons("collapse-published", by_hand())
    assert why.startswith("there are 2 heads") and "triangle inequality fails" in why
    single = replace(
        by_hand().layers[0], query_key=(1.0,), value_output_1=(1.0,), value_output_inf=(1.0,),
        gamma=(0.5,),
    )  # fmt: skip
    assert bound("collapse-published").applies(by_hand(layers=(single, single)))


def test_the_composite_measure_is_no_norm() -> None:
    n = 100
    row, column = np.zeros((n, n)), np.zeros((n, n))
    row[0], column[:, 0] = 1.0, 1.0
    assert composite(row) == composite(column) == pytest.approx(10.0)
    assert composite(row + column) == pytest.approx(101.0)


def test_the_laws_assume_what_their_expansion_needs() -> None:
    facts = by_hand()
    assert "there is an MLP" in reasons("collapse-cubic-law", facts)
    assert "there is no mask" in reasons("collapse-causal-rate", facts)
    bare = replace(
        facts.layers[0], lipschitz=1.0, cubic_law=-3.0, diagonal=0.5, value_gain=1.0,
        query_key=(3.0,), value_output_1=(2.0,), value_output_inf=(8.0,), gamma=(0.25,),
    )  # fmt: skip
    facts = by_hand(layers=(bare, bare))
    assert bound("collapse-cubic-law").applies(facts)
    assert bound("collapse-causal-rate").applies(replace(facts, mask="causal", turned=True))
    assert reasons("collapse-causal-rate", replace(facts, mask="other")) == [
        "the mask is not the causal one"
    ]
    assert reasons("collapse-cubic-law", replace(facts, turned=True)) == [
        "positions enter the logits"
    ]
    for name, mask in (("collapse-cubic-law", "none"), ("collapse-causal-rate", "causal")):
        broken = replace(facts, mask=mask, skip=True, norm=True, layered=False, stochastic=False)
        assert reasons(name, broken) == [
            "there is a skip connection",
            "there is a norm",
            "a layer is not one self-attention, then at most one MLP",
            "rows do not sum to one",
        ]
    for name in ("collapse-cubic-law", "collapse-causal-rate"):
        missing = replace(bare, cubic_law=None, value_gain=None)
        assert bound(name).log10_values(by_hand(layers=(bare, missing))) is None


# --- gamma ---------------------------------------------------------------------------------


def test_gamma_never_exceeds_half_the_root_of_n() -> None:
    rng = np.random.default_rng(0)
    largest = 0.0
    for _ in range(2000):
        n = int(rng.integers(2, 7))
        layer = random_layer(rng, width=int(rng.integers(1, 4)), heads=int(rng.integers(1, 4)))
        # Heavy tails: a few entries far above the rest come closest.
        x = rng.standard_t(1.0, size=(n, layer.heads[0].w_q.shape[0]))
        each, joint = gammas(differences(x, layer))
        largest = max(largest, *(g / math.sqrt(n) for g in (*each, joint)))
    assert 0.45 < largest <= 0.5 + 1e-9
    (each,), joint = gammas(differences(np.array([[3.0], [-3.0]]), two_tokens(0.7, 1.3)))
    assert each == joint == pytest.approx(math.sqrt(2) / 2, rel=1e-15)  # they attain it


def test_about_another_centre_gamma_reaches_the_root_of_n_over_two_and_no_more() -> None:
    # About another centre E is any matrix: R = I, W_QK = E.
    (each,), joint = gammas([np.array([[1.0, -1.0], [0.0, 0.0]])])
    assert each == joint == math.sqrt(2 / 2)
    rng = np.random.default_rng(1)
    for _ in range(2000):
        n = int(rng.integers(2, 6))
        (each,), _ = gammas([rng.standard_t(0.5, size=(n, n))])
        assert each <= math.sqrt(n / 2) + 1e-9


# --- two tokens of width one -----------------------------------------------------------------


@pytest.mark.parametrize("a", [3.0, 1.0, 0.3])
def test_two_tokens_follow_their_closed_form(a: float) -> None:
    run = forward(np.array([[a], [-a]]), [two_tokens(0.7, 1.3)])
    assert run.streams[1] == pytest.approx(1.3 * a * math.tanh(0.7 * a * a) * np.array([[1], [-1]]))


def test_two_tokens_come_as_close_to_the_sharp_bound_as_one_likes() -> None:
    ratios = []
    for a in (1.0, 0.1, 0.01, 0.001):
        layers = [two_tokens(0.7, 1.3)]
        facts = facts_of(forward(np.array([[a], [-a]]), layers), layers)
        assert facts.layers[0].joint_gamma == pytest.approx(math.sqrt(2) / 2)
        ratios.append(10 ** (facts.log10_composite[1] - values("collapse-sharp", facts)[1]))
        # The proved constant is larger by the root of two, the published one (4) by four of them.
        for name, loss in (("proved", 2**0.5), ("from-weights", 2**0.5), ("published", 4 * 2**0.5)):
            other = 10 ** (facts.log10_composite[1] - values(f"collapse-{name}", facts)[1])
            assert other * loss == pytest.approx(ratios[-1])
    assert ratios == sorted(ratios)
    assert ratios[-1] == pytest.approx(1.0, abs=1e-9) and max(ratios) <= 1 + 1e-9


def test_the_smallest_residual_of_two_tokens_is_bounded_with_constant_one() -> None:
    a, layers = 0.01, [two_tokens(0.7, 1.3)]
    run = forward(np.array([[a], [-a]]), layers)
    centres = np.linspace(-a, a, 2001)
    smallest = [min(composite(x - c) for c in centres) for x in run.streams]
    # The minimiser of (a, -a) about c: sqrt(2a (a + |c|)), at c = 0 the mean.
    assert smallest[0] == pytest.approx(math.sqrt(2) * a)
    facts = facts_of(run, layers)
    facts = replace(facts, log10_smallest=tuple(math.log10(size) for size in smallest))
    predicted = values("collapse-smallest", facts)[1]
    assert facts.log10_smallest[1] <= predicted
    assert 10 ** (facts.log10_smallest[1] - predicted) == pytest.approx(2**-0.5, abs=1e-3)


def test_the_notes_exponent_with_an_mlp_is_false() -> None:
    # An MLP that is the identity: relu(z) - relu(-z). Its lambda is 2.
    up = np.array([[1.0, -1.0]])
    attention = two_tokens(20.0, 20.0)
    layer = replace(attention, mlp=("relu", up, np.zeros(2), up.T, np.zeros(1)))
    layers = [layer, layer]
    facts = facts_of(forward(np.array([[1e-3], [-1e-3]]), layers), layers)
    facts_of_one = facts.layers[0]
    assert facts_of_one.lipschitz == pytest.approx(2.0)
    assert one(up) == 1.0 and inf(up) == 2.0
    factor = math.log10(4 * facts_of_one.gamma[0] * 20 * 20 * facts_of_one.lipschitz)
    first, last = facts.log10_composite[0], facts.log10_composite[2]
    depth = 2
    as_written = (3 * depth - 1) / 2 * factor + 3**depth * first
    as_proved = (3**depth - 1) / 2 * factor + 3**depth * first
    assert last > as_written + 0.5
    assert last < as_proved
    assert values("collapse-published", facts)[2] == pytest.approx(as_proved)


# --- networks at random ------------------------------------------------------------------------


def network(seed: int) -> tuple[Matrix, list[Layer]]:
    """Tokens and one to three layers, of random sizes: from tiny logits to saturated ones."""
    rng = np.random.default_rng(seed)
    width = int(rng.integers(1, 7))
    layers = [
        random_layer(
            rng,
            width=width,
            heads=int(rng.choice([1, 1, 2, 4])),
            act=str(rng.choice(["", "", "relu", "gelu"])),
            query_key=float(10 ** rng.uniform(-3, 2)),
            value=float(10 ** rng.uniform(-1, 1)),
        )
        for _ in range(int(rng.integers(1, 4)))
    ]
    x = rng.normal(size=(int(rng.integers(2, 9)), width)) * 10 ** rng.uniform(-1, 1)
    return x + 3 * rng.normal(size=width), layers


@pytest.mark.parametrize("name", CUBIC)
def test_no_random_network_passes_a_bound(name: str) -> None:
    closest = -math.inf
    for seed in range(400):
        x, layers = network(seed)
        run = forward(x, layers)
        facts = facts_of(run, layers)
        stated = bound(name)
        floor = math.log10(max(float(np.abs(stream).max()) for stream in run.streams)) - 11
        if name == "collapse-published":
            facts = replace(facts, log10_smallest=())
            if any(len(layer.heads) > 1 for layer in layers):
                assert not stated.applies(facts)
        else:
            assert stated.applies(facts)
        measured = facts.log10_smallest if stated.measure == "smallest" else facts.log10_composite
        for seen, predicted in zip(measured[1:], values(name, facts)[1:], strict=True):
            if seen < floor:  # rounding, no residual
                continue
            closest = max(closest, seen - predicted)
            assert seen <= predicted + 1e-9, seed
    assert closest > -1.6  # a bound that held because it is far away would prove nothing


def test_a_causal_network_passes_the_bounds_and_is_told_that_they_do_not_apply() -> None:
    layers = [two_tokens(1e-6, 1.0)]
    facts = facts_of(forward(np.array([[1.0], [-1.0]]), layers, causal=True), layers, causal=True)
    assert facts.log10_composite[1] > values("collapse-proved", facts)[1] + 5
    assert reasons("collapse-proved", facts) == ["the mask is causal"]


def test_a_skip_passes_the_bounds_and_is_told_that_they_do_not_apply() -> None:
    layers = [two_tokens(1e-6, 1.0)]
    facts = facts_of(forward(np.array([[1.0], [-1.0]]), layers, skip=True), layers, skip=True)
    assert facts.log10_composite[1] > values("collapse-proved", facts)[1] + 5
    assert reasons("collapse-proved", facts) == ["there is a skip connection"]


def test_small_residuals_obey_the_cubic_law() -> None:
    rng = np.random.default_rng(5)
    for heads in (1, 3):
        layers = [random_layer(rng, width=5, heads=heads, value=20.0)]
        shape = rng.normal(size=(6, 5))
        centre = rng.normal(size=5)
        misses = []
        for size in (1e-1, 1e-2, 1e-3):
            facts = facts_of(forward(centre + size * shape, layers), layers)
            assert bound("collapse-cubic-law").applies(facts)
            misses.append(abs(facts.log10_frobenius[1] - values("collapse-cubic-law", facts)[1]))
        assert misses[0] > misses[1] > misses[2]
        assert misses[1] / misses[2] == pytest.approx(10, rel=0.3)  # the next term is of order R
        assert misses[2] < 1e-3


def orthogonal(rng: np.random.Generator, width: int) -> Matrix:
    return np.linalg.qr(rng.normal(size=(width, width)))[0]


def test_opposed_heads_have_no_joint_gain_and_a_residual_all_the_same() -> None:
    rng = np.random.default_rng(0)
    normal = lambda: rng.normal(size=(4, 4))  # noqa: E731
    layers = [
        Layer(
            tuple(Head(normal(), normal(), np.eye(4), sign * np.eye(4), np.zeros(4)) for sign in (1, -1)),
            0.5,
            np.zeros(4),
        )
    ]  # fmt: skip
    facts = facts_of(forward(3 * rng.normal(size=(5, 4)), layers, causal=True), layers, causal=True)
    assert facts.layers[0].value_gain == 0.0
    assert values("collapse-causal-rate", facts)[1] == -math.inf
    assert 10 ** facts.log10_frobenius[1] > 1
    assert reasons("collapse-causal-rate", facts) == [
        "there are 2 heads, and the gain of the sum of their W_h is theirs only where their "
        "patterns are equal"
    ]


def test_the_causal_rate_is_no_bound_and_the_largest_singular_value_is_above_the_rate() -> None:
    zero = np.zeros((2, 2))

    def steps(x: list[list[float]], w: Matrix, depth: int) -> tuple[list[float], float]:
        layers = [Layer((Head(zero, zero, w, np.eye(2), np.zeros(2)),), 0.5, np.zeros(2))] * depth
        facts = facts_of(forward(np.array(x), layers, causal=True), layers, causal=True)
        first = values("collapse-causal-rate", facts)[1] - facts.log10_frobenius[0]
        return list(10 ** np.diff(facts.log10_frobenius)), 10**first

    # The third token sees the second's difference with weight 1/3, besides its own.
    found, rate = steps([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]], np.eye(2), 1)
    assert rate == pytest.approx(0.5) and found[0] > rate
    # A shear stretches one direction by 2.41, and its powers grow as fast as those of 1.
    found, rate = steps(
        [[0.0, 0.0], [1.0, 1.0], [0.0, 2.0]], np.array([[1.0, 2.0], [0.0, 1.0]]), 60
    )
    assert rate == pytest.approx(0.5 * (1 + math.sqrt(2))) and found[-1] < 0.55


def test_causal_residuals_halve_where_values_keep_norms_and_patterns_are_uniform() -> None:
    rng = np.random.default_rng(6)
    zero = np.zeros((4, 4))
    layers = [
        Layer((Head(zero, zero, orthogonal(rng, 4), np.eye(4), np.zeros(4)),), 0.5, np.zeros(4))
        for _ in range(40)
    ]
    run = forward(rng.normal(size=(6, 4)), layers, causal=True)
    facts = facts_of(run, layers, causal=True)
    assert facts.layers[0].diagonal == pytest.approx(0.5)
    assert facts.layers[0].value_gain == pytest.approx(1.0)
    assert bound("collapse-causal-rate").applies(facts)
    steps = np.diff(facts.log10_frobenius)
    assert steps[-1] == pytest.approx(math.log10(0.5), abs=1e-5)
    predicted = values("collapse-causal-rate", facts)
    assert predicted[-1] - facts.log10_frobenius[-2] == pytest.approx(math.log10(0.5))
    assert facts.log10_frobenius[-1] == pytest.approx(predicted[-1], abs=1e-5)


def test_res_is_what_is_left_without_the_mean() -> None:
    x = np.array([[0.0], [0.0], [0.0], [1.0]])
    assert composite(res(x)) == pytest.approx(1.061, abs=5e-4)
    assert composite(x) == 1.0
