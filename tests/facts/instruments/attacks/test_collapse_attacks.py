"""The attacked networks are what they say, to the last digits, and attacks count truthfully."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
import torch

from leadline.errors import UnknownName
from leadline.instruments.attacks.attention import Attacked, WorstCase, campaign, merged
from leadline.instruments.attacks.climbs import EQUAL_LOG, GOALS, climb_stacks, stack_facts
from leadline.instruments.attacks.collapse import (
    CLIMBS,
    DEEP_SHARE,
    SHARES,
    collapse_campaign,
    optimised_collapse_attack,
    random_collapse_attack,
)
from leadline.instruments.attacks.evidence import BEYOND, ROUNDING_LOG, evident, judged_paths
from leadline.instruments.attacks.shapes import (
    RANGES,
    STACK_KINDS,
    StackShape,
    draw_shape,
    structured,
)
from leadline.instruments.attacks.stacks import Stacks
from leadline.instruments.attacks.steps import (
    CentredStream,
    better_centre,
    composite,
    gelu_step,
    relu_step,
)
from leadline.theory import COLLAPSE_BOUNDS, LayerFacts, StackFacts

ATTACKED = [name for name, bound in COLLAPSE_BOUNDS.items() if bound.side != "law"]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def small(kind: str, activation: str = "none", *, batch: int = 3, shared: bool = False) -> Stacks:
    """Networks of two layers, three tokens, two features and the most heads of a kind."""
    chosen = STACK_KINDS[kind]
    shape = StackShape(3, 2, chosen.heads[-1], 2, 2, 3, activation, shared)  # type: ignore[arg-type]
    return Stacks(chosen, batch, shape, generator=generator(5))


@torch.no_grad()
def make_plain(stacks: Stacks) -> None:
    """Gaussian tensors of one moderate size."""
    draw = generator(7)
    for name, free in stacks.free.items():
        free.copy_(torch.randn(free.shape, generator=draw, dtype=free.dtype))
        stacks.sizes[name].fill_(math.log(0.6))


# --- by another route: the naive network with 60 digits ---------------------------------------


def matrix(tensor: torch.Tensor) -> mpmath.matrix:
    return mpmath.matrix(tensor.detach().tolist())


def softmax(row: list[mpmath.mpf]) -> list[mpmath.mpf]:
    raised = [mpmath.exp(value) for value in row]
    return [value / mpmath.fsum(raised) for value in raised]


def gelu(x: mpmath.mpf) -> mpmath.mpf:
    return x * mpmath.ncdf(x)


def naive_layer(stacks: Stacks, network: int, layer: int, x: mpmath.matrix) -> mpmath.matrix:
    """One layer as it is written in textbooks."""
    n, d = x.rows, x.cols

    def weight(name: str, head: int | None = None) -> mpmath.matrix | None:
        found = stacks.tensor(name, layer)
        if found is None:
            return None
        return matrix(found[network] if head is None else found[network, head])

    def with_bias(y: mpmath.matrix, bias: mpmath.matrix | None) -> mpmath.matrix:
        return y if bias is None else y + mpmath.ones(n, 1) * bias

    update = mpmath.zeros(n, d)
    for head in range(stacks.shape.heads):
        query = with_bias(x * weight("query", head), weight("query_bias", head))
        logits = stacks.scaling * query * (x * weight("key", head)).T
        pattern = mpmath.zeros(n, n)
        for i in range(n):
            seen = i + 1 if stacks.kind.mask == "causal" else n
            for j, value in enumerate(softmax([logits[i, j] for j in range(seen)])):
                pattern[i, j] = value
        update += pattern * x * weight("value", head) * weight("output", head)
    x = written(stacks, x, with_bias(update, weight("output_bias")))
    if stacks.shape.activation == "none":
        return x
    act = gelu if stacks.shape.activation == "gelu" else lambda value: max(value, mpmath.mpf(0))
    hidden = with_bias(x * weight("up"), weight("up_bias")).apply(act)
    return written(stacks, x, with_bias(hidden * weight("down"), weight("down_bias")))


def residual(x: mpmath.matrix) -> mpmath.matrix:
    mean = mpmath.ones(1, x.rows) * x / x.rows
    return x - mpmath.ones(x.rows, 1) * mean


def inner(a: mpmath.matrix, b: mpmath.matrix) -> mpmath.mpf:
    return mpmath.fsum(p * q for p, q in zip(a, b, strict=True))


def written(stacks: Stacks, x: mpmath.matrix, update: mpmath.matrix) -> mpmath.matrix:
    kind = stacks.kind
    if not kind.skip:
        return update
    if kind.turned and inner(residual(x), residual(update)) * kind.turned < -(
        mpmath.mpf(10) ** -90
    ):
        update = -update
    if kind.orthogonal:
        mean = mpmath.ones(1, x.rows) * x / x.rows
        share = inner(x, update) / (x.rows * inner(mean, mean))
        update = update - share * mpmath.ones(x.rows, 1) * mean
    return x + update


def composite_of(x: mpmath.matrix) -> mpmath.mpf:
    columns = [mpmath.fsum(abs(x[i, j]) for i in range(x.rows)) for j in range(x.cols)]
    rows = [mpmath.fsum(abs(x[i, j]) for j in range(x.cols)) for i in range(x.rows)]
    return mpmath.sqrt(max(columns) * max(rows))


@pytest.mark.parametrize(
    ("kind", "activation"),
    [
        ("one-head", "none"),
        ("one-head-mlp", "relu"),
        ("one-head-mlp", "gelu"),
        ("heads", "none"),
        ("heads-mlp", "gelu"),
        ("causal", "none"),
        ("skip-aligned", "none"),
        ("skip-aligned-mlp", "relu"),
        ("skip", "gelu"),
        ("skip-orthogonal", "none"),
    ],
)
@pytest.mark.parametrize("tiny", [False, True])
def test_residuals_are_those_of_the_naive_network(kind: str, activation: str, tiny: bool) -> None:
    stacks = small(kind, activation, shared=tiny)
    with torch.no_grad():
        make_plain(stacks)
        if tiny:
            stacks.sizes["tokens"].fill_(math.log(1e-9))
        seen = stacks.run()
    with mpmath.workdps(120):
        for network in range(stacks.batch):
            x = mpmath.ones(3, 1) * matrix(stacks.tensor("centre")[network])  # type: ignore[index]
            x = x + matrix(stacks.tensor("tokens")[network])  # type: ignore[index]
            for site in range(3):
                rest = residual(x)
                found = float(mpmath.log(composite_of(rest)))
                assert float(seen.log_composite[network, site]) == pytest.approx(found, abs=1e-9)
                found = float(mpmath.log(inner(rest, rest)) / 2)
                assert float(seen.log_frobenius[network, site]) == pytest.approx(found, abs=1e-9)
                if site < 2:
                    x = naive_layer(stacks, network, site, x)


@torch.no_grad()
def test_facts_are_those_of_the_definitions() -> None:
    stacks = small("heads-mlp", "gelu")
    make_plain(stacks)
    seen = stacks.run()
    facts = stack_facts(stacks, seen)
    slope = 0.5 * (1 + math.erf(1)) + math.exp(-1) / math.sqrt(math.pi)  # of GELU at sqrt(2)
    for network, fact in enumerate(facts):
        x = stacks.tensor("centre")[network] + stacks.tensor("tokens")[network]  # type: ignore[index]
        rest = (x - x.mean(0)).numpy()
        layer = fact.layers[0]
        totals, tops, sizes = [], [], []
        for head in range(stacks.shape.heads):
            q, k, v, o = (
                stacks.tensor(name, 0)[network, head].numpy()  # type: ignore[index]
                for name in ("query", "key", "value", "output")
            )
            product = np.einsum("ab,cb->ac", q, k)
            assert layer.query_key[head] == pytest.approx(np.linalg.norm(product, 1), rel=1e-12)
            assert layer.value_output_1[head] == pytest.approx(np.linalg.norm(v @ o, 1), rel=1e-12)
            assert layer.value_output_inf[head] == pytest.approx(
                np.linalg.norm(v @ o, np.inf), rel=1e-12
            )
            scores = rest @ product @ rest.T / math.sqrt(2)
            reach = np.ptp(scores, axis=1)
            totals.append(reach.sum())
            tops.append(reach.max())
            sizes.append(np.linalg.norm(scores, 1))
            gamma = math.sqrt(totals[-1] * tops[-1]) / (2 * sizes[-1])
            assert layer.gamma[head] == pytest.approx(gamma, rel=1e-9)
        joint = math.sqrt(sum(totals) * sum(tops)) / (2 * sum(sizes))
        assert layer.joint_gamma == pytest.approx(joint, rel=1e-9)
        assert layer.scaling == pytest.approx(1 / math.sqrt(2), rel=1e-15)
        up, down = (stacks.tensor(name, 0)[network].numpy() for name in ("up", "down"))  # type: ignore[index]
        norms = [np.linalg.norm(w, p) for w in (up, down) for p in (1, np.inf)]
        assert layer.lipschitz == pytest.approx(slope * math.sqrt(np.prod(norms)), rel=1e-9)
        assert (fact.tokens, fact.depth, fact.mask, fact.skip) == (3, 2, "none", False)
        assert layer.alignment is None and layer.overlap is None


@torch.no_grad()
def test_gamma_does_not_depend_on_the_size_of_the_residual() -> None:
    """Also where the squares of the logits are below the smallest float."""
    stacks = small("heads")
    make_plain(stacks)
    found = []
    for size in (1e-3, 1e-90, 1e-140):
        stacks.sizes["tokens"].fill_(math.log(size))
        seen = stacks.run()
        found.append((seen.gamma[:, 0], seen.joint_gamma[:, 0]))
    for other in found[1:]:
        for there, here in zip(other, found[0], strict=True):
            assert there.flatten().tolist() == pytest.approx(here.flatten().tolist(), rel=1e-9)
    assert float(found[0][1].min()) > 0.1


@pytest.mark.parametrize("kind", ["skip-aligned", "skip-aligned-mlp", "skip-orthogonal"])
@torch.no_grad()
def test_updates_are_turned_and_orthogonal_as_the_kind_says(kind: str) -> None:
    stacks = small(kind, "relu" if "mlp" in kind else "none", batch=50)
    seen = stacks.run()
    assert seen.alignment is not None and seen.overlap is not None
    assert bool((seen.alignment * stacks.kind.turned >= 0).all())
    assert float(seen.alignment.abs().max()) <= 1 + 1e-12
    if stacks.kind.orthogonal:
        alive = seen.log_frobenius.isfinite().all(1) & (
            stacks.tensor("centre")[:, 0].norm(dim=-1) > 0
        )  # type: ignore[index]
        assert int(alive.sum()) > 30
        assert float(seen.overlap[alive].max()) < 1e-9
    else:
        assert float(seen.overlap.max()) > 0.1


@pytest.mark.parametrize("size", [1e-200, 1e-12, 1e-3, 0.3, 1.0, 1.001, 30.0])
def test_steps_through_activations_have_no_cancellation(size: float) -> None:
    here = torch.linspace(-3, 3, 25, dtype=torch.float64)
    for sign in (-1.0, 1.0):
        step = torch.full_like(here, sign * size)
        with mpmath.workdps(230):
            places = [mpmath.mpf(float(x)) for x in here]
            move = mpmath.mpf(sign * size)
            smooth = [float(gelu(x + move) - gelu(x)) for x in places]
            broken = [float(max(x + move, 0) - max(x, 0)) for x in places]
        assert gelu_step(here, step).tolist() == pytest.approx(smooth, rel=1e-11, abs=1e-14 * size)
        assert relu_step(here, step).tolist() == pytest.approx(broken, rel=1e-12, abs=1e-300)


def test_a_better_centre_than_the_mean_is_found() -> None:
    """X = (0, 0, 0, 1)': 1.0607 about the mean, 1 about 0."""
    tokens = torch.tensor([[[0.0], [0.0], [0.0], [1.0]]], dtype=torch.float64)
    state = CentredStream(torch.zeros(1, 1, 1, dtype=torch.float64), tokens).at_mean()
    assert float(composite(state.rest)) == pytest.approx(math.sqrt(1.5 * 0.75), rel=1e-14)
    better = better_centre(state)
    assert float(composite(better.rest)) == pytest.approx(1.0, rel=1e-14)
    assert (better.centre + better.rest).flatten().tolist() == pytest.approx([0, 0, 0, 1])


@torch.no_grad()
def test_the_smallest_residual_is_never_above_the_one_about_the_mean() -> None:
    stacks = small("heads-mlp", "relu", batch=100)
    seen = stacks.run()
    there = seen.log_composite.isfinite()
    assert bool((seen.log_smallest <= seen.log_composite + 1e-9)[there].all())
    assert bool((seen.log_smallest < seen.log_composite - 1e-3).any())


def test_shapes_and_structures_are_varied() -> None:
    draw = generator()
    shapes = [draw_shape(STACK_KINDS["heads-mlp"], generator=draw) for _ in range(400)]
    assert {shape.tokens for shape in shapes} == set(range(2, 11))
    assert {shape.width for shape in shapes} == set(range(1, 13))
    assert {shape.depth for shape in shapes} == {1, 2, 3}
    assert {shape.heads for shape in shapes} == {2, 3, 4}
    assert {shape.activation for shape in shapes} == {"relu", "gelu"}
    assert {shape.shared for shape in shapes} == {True, False}
    drawn = structured((600, 4, 4), generator=draw)
    ranks = torch.linalg.matrix_rank(drawn)
    filled = (drawn != 0).sum((1, 2))
    assert int((filled == 1).sum()) > 50  # single entries
    signed = drawn.abs().sum(1).eq(1).all(1) & drawn.abs().sum(2).eq(1).all(1)
    assert int(signed.sum()) > 50  # signed permutations
    assert int((drawn.abs() == 1).all(2).all(1).sum()) > 50  # signs
    assert int(((ranks == 1) & (filled == 16)).sum()) > 50  # rank one
    assert int(((filled > 1) & (filled < 12) & ~signed).sum()) > 50  # sparse


@torch.no_grad()
def test_sizes_are_drawn_between_their_ends() -> None:
    shape = StackShape(3, 2, 1, 2, 2, 3, "relu", False)
    stacks = Stacks(STACK_KINDS["one-head-mlp"], 400, shape, generator=generator())
    for name, size in stacks.sizes.items():
        low, high = (math.log(end) for end in RANGES[name])
        assert low <= float(size.min()) < low + 0.1 * (high - low)
        assert high >= float(size.max()) > high - 0.1 * (high - low)


# --- counting and judging ---------------------------------------------------------------------


def test_a_violation_with_fewer_failing_conditions_is_the_worse_one() -> None:
    one, two = WorstCase(1, 1.5, failing=1), WorstCase(2, 9.0, failing=2)
    assert one.with_(two) == two.with_(one) == WorstCase(3, 1.5, failing=1)
    below = WorstCase(1, 0.7, failing=0)
    assert below.with_(two).ratio == 9.0
    assert WorstCase(1, 0.7).with_(WorstCase(1, 0.9)).ratio == 0.9


def test_a_residual_of_the_size_of_rounding_is_no_evidence() -> None:
    stacks = small("one-head", batch=20)
    facts = next(fact for fact in stack_facts(stacks, stacks.run()) if evident(fact))
    for field in ("log10_composite", "log10_smallest"):
        values = list(getattr(facts, field))
        for lost in (values[1] - 40.0, -math.inf, math.nan):
            changed = {field: (values[0], lost, *values[2:])}
            assert not evident(type(facts)(**{**as_fields(facts), **changed}))


def as_fields(facts) -> dict:
    return {name: getattr(facts, name) for name in type(facts).__dataclass_fields__}


def by_hand(*logs: float, skip: bool = False, alignment: float = 0.5) -> StackFacts:
    """A network of four tokens, all of whose residuals are these; c = 0.75 of `collapse-proved`."""
    layer = LayerFacts(
        query_key=(1.0,), value_output_1=(1.0,), value_output_inf=(1.0,), scaling=1.0,
        gamma=(0.5,), joint_gamma=0.5, alignment=alignment, overlap=0.1,
    )  # fmt: skip
    return StackFacts(
        tokens=4, layers=(layer,) * (len(logs) - 1), skip=skip,
        log10_composite=logs, log10_smallest=logs, log10_frobenius=logs,
    )  # fmt: skip


def judged(facts: StackFacts, name: str) -> Attacked:
    return judged_paths([(facts,)], bounds=[name])[name]


@pytest.mark.parametrize(
    ("after", "ratio"), [(-1.0, 10.0), (-8.0, 1e8), (-10.0, 1e9), (-100.0, 1e9), (-math.inf, 1e9)]
)
def test_the_deepest_falls_violate_a_lower_bound_as_far_as_rounding_lets_it_be_said(
    after: float, ratio: float
) -> None:
    assert ROUNDING_LOG == -9.0
    found = judged(by_hand(0.0, after, skip=True), "skip-keeps-residual")
    assert (found.within.attacks, found.outside.attacks) == (1, 0)
    assert found.within.ratio == pytest.approx(ratio, rel=1e-12)
    # The floor is relative to what was there before, and begins anew at every layer.
    twice = judged(by_hand(-40.0, -40.0 + after, -math.inf, skip=True), "skip-keeps-residual")
    assert twice.within.ratio == pytest.approx(ratio * 1e9, rel=1e-12)
    against = judged(by_hand(0.0, after, skip=True, alignment=-1.0), "skip-keeps-residual")
    assert against.outside.ratio == pytest.approx(ratio, rel=1e-12)


def test_equal_tokens_and_numbers_that_are_none_say_nothing_about_a_lower_bound() -> None:
    for logs in ((-math.inf, -math.inf), (-math.inf, 0.0), (0.0, math.nan), (math.nan, 0.0)):
        assert not evident(by_hand(*logs, skip=True), "lower")
        assert judged(by_hand(*logs, skip=True), "skip-keeps-residual") == Attacked()


def test_an_infinite_residual_violates_an_upper_bound_that_a_float_can_hold() -> None:
    assert pytest.approx(308.2547, abs=1e-4) == BEYOND
    for rest in ((), (math.nan,), (-3.0, math.nan)):
        found = judged(by_hand(0.0, math.inf, *rest), "collapse-proved")
        assert found.within.attacks == 1 and found.within.ratio == 1e300
        assert found.within.facts.depth == 1
    # r^3 is 10^120 here and 10^360 there: where the truth is beyond float, so may be the bound.
    assert judged(by_hand(40.0, math.inf), "collapse-proved").within.ratio > 1e180
    beyond = judged(by_hand(120.0, math.inf), "collapse-proved").within
    assert beyond.attacks == 1 and beyond.ratio < 1e-50
    assert judged(by_hand(0.0, math.inf, skip=True), "skip-keeps-residual").within.ratio < 1


def test_a_layer_before_the_overflow_is_judged_too() -> None:
    found = judged(by_hand(0.0, 5.0, math.inf), "collapse-one-layer").within
    # The second layer may reach 0.75 * 10^15.
    assert math.log10(found.ratio) == pytest.approx(BEYOND - 15 - math.log10(0.75), abs=1e-9)
    assert found.facts.depth == 2
    first = judged(by_hand(0.0, 200.0, math.inf), "collapse-one-layer").within
    assert first.ratio == pytest.approx(1e200 / 0.75, rel=1e-9)


@torch.no_grad()
def test_tokens_that_differ_by_the_rounding_of_their_mean_are_equal() -> None:
    assert EQUAL_LOG == -12.0
    shape = StackShape(7, 2, 1, 2, 1, 1, "none", False)
    stacks = Stacks(STACK_KINDS["skip-aligned"], 3, shape, generator=generator())
    stacks.free["tokens"][0] = 0.1
    stacks.free["tokens"][1] = 0.1 + 1e-10 * stacks.free["tokens"][1]
    facts = stack_facts(stacks, stacks.run())
    assert facts[0].log10_frobenius[0] == facts[0].log10_composite[0] == -math.inf
    assert not evident(facts[0], "lower")
    assert all(math.isfinite(one.log10_composite[0]) for one in facts[1:])


def test_as_many_networks_are_attacked_as_were_asked_for() -> None:
    found = random_collapse_attack("one-head", count=150, seed=3)
    assert sorted(found) == sorted(ATTACKED)
    assert found["collapse-proved"].within.attacks == 150
    assert found["skip-keeps-residual"].outside.attacks == 150
    climbed = optimised_collapse_attack("heads", count=30, steps=2, seed=3)
    assert climbed["collapse-proved"].within.attacks == 30
    assert climbed["collapse-published"].outside.attacks == 30


def test_attacks_repeat_by_seed_and_can_be_narrowed() -> None:
    first = random_collapse_attack("heads", count=20, seed=1)
    assert first == random_collapse_attack("heads", count=20, seed=1)
    assert first != random_collapse_attack("heads", count=20, seed=2)
    one = random_collapse_attack("heads", count=20, seed=1, bounds=["collapse-proved"])
    assert one == {"collapse-proved": first["collapse-proved"]}


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(UnknownName, match="'one-haed'"):
        random_collapse_attack("one-haed", count=1, seed=0)


@pytest.mark.parametrize("goal", GOALS)
def test_ascent_raises_what_it_is_after(goal: str) -> None:
    kind = "skip-aligned" if goal == "fall" else "heads"
    shape = StackShape(3, 2, 2, 2, 2, 1, "none", False)
    stacks = Stacks(STACK_KINDS[kind], 12, shape, generator=generator(2))
    name = {
        "chain": "collapse-proved",
        "layer": "collapse-one-layer",
        "weights": "collapse-from-weights",
        "smallest": "collapse-smallest",
        "fall": "skip-keeps-residual",
    }[goal]
    bound = COLLAPSE_BOUNDS.get(name)()

    def height(facts) -> float:
        measured = {
            "composite": facts.log10_composite,
            "smallest": facts.log10_smallest,
            "frobenius": facts.log10_frobenius,
        }[bound.measure]
        gap = measured[-1] - bound.log10_values(facts)[-1]
        return -gap if goal == "fall" else gap

    paths = climb_stacks(stacks, steps=40, goal=goal)  # type: ignore[arg-type]
    rises = [height(end) - height(start) for start, _, end in paths if evident(start)]
    assert len(rises) >= 6
    assert sum(rise > 0 for rise in rises) >= 0.8 * len(rises)


def test_a_campaign_meets_every_bound_as_often_as_was_asked() -> None:
    jobs = collapse_campaign(attacks=48, optimised=16, seed=1)
    for optimised, least in ((False, 48), (True, 16)):
        found = merged(run_quickly(job) for job in jobs if job.optimised is optimised)
        for name in (*ATTACKED, "convergence"):
            if name != "skip-as-written":
                assert found[name].within.attacks >= least, name
                assert found[name].within.ratio <= 1 + 1e-9, name


def run_quickly(job) -> dict[str, Attacked]:
    """The same job with few steps."""
    if "steps" in job.run.keywords:
        job.run.keywords["steps"] = 2
    return job.run()


def test_a_campaign_leaves_out_what_was_not_asked_for() -> None:
    assert collapse_campaign(attacks=4, optimised=4, seed=0, bounds=["one"]) == []
    only = collapse_campaign(attacks=4, optimised=3, seed=0, bounds=["convergence"])
    assert {job.what for job in only} == {"rank collapse, convergence"}
    assert [(job.optimised, job.count) for job in only] == [(False, 4), (True, 3)]
    (note,) = collapse_campaign(attacks=11, optimised=3, seed=0, bounds=["convergence-as-written"])
    assert DEEP_SHARE == 5 and (note.optimised, note.count) == (False, 3)
    assert all(job.optimised for job in collapse_campaign(attacks=0, optimised=4, seed=0))
    assert all(not job.optimised for job in campaign(attacks=4, optimised=0, seed=0))
    assert set(SHARES) == set(STACK_KINDS)
    assert {goal for _, goal, _ in CLIMBS} == set(GOALS)
    shares = [1 / share for kind, _, share in CLIMBS if kind.startswith("one-head")]
    assert sum(shares) >= 1
    assert len(set(itertools.chain(SHARES))) == len(SHARES)
