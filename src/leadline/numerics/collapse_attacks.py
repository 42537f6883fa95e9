"""The search for self-attention networks that violate a bound on rank collapse.

At random: networks of many shapes, sizes and structures. By gradient ascent: inputs, weights and
their sizes are moved by Adam so that the logarithm of measured over predicted rises; what is
predicted is computed from the same facts as tensors (`Seen`), with

    log c = log(lambda scaling (sum_h |W_QK,h|_1) sqrt(max_h |W_h|_1 max_h |W_h|_inf)) [+ log gamma]
    log r' - 3 log r - log c       of every layer, weighted by the goal.

Constants do not matter to an ascent; the bounds themselves, also those of a plug-in, are set
against every network that was drawn or reached. A ratio is measured / predicted for an upper bound
and its inverse for a lower one, the largest over the layers: above 1 it is a violation. Networks
whose residual vanishes, or is of the size of rounding, are no evidence and not counted. Laws are
not attacked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor

from leadline.errors import UnknownName
from leadline.numerics.attacked_stacks import (
    STACK_KINDS,
    Seen,
    Shape,
    StackKind,
    Stacks,
    draw_shape,
)
from leadline.numerics.attacks import RATE, STEPS, Attacked, Found, Job
from leadline.theory.rank_collapse import COLLAPSE_BOUNDS, CollapseBound, LayerFacts, StackFacts
from leadline.theory.rank_collapse._bound import measured_residuals
from leadline.theory.rank_collapse._cubic import layer_weight
from leadline.theory.rank_collapse.collapse_published import published_factor
from leadline.theory.rank_collapse.convergence import converges, converges_as_written

__all__ = [
    "AS_WRITTEN",
    "CONVERGENCE",
    "GOALS",
    "climb_stacks",
    "collapse_campaign",
    "convergence_attack",
    "evident",
    "judged_paths",
    "optimised_collapse_attack",
    "random_collapse_attack",
    "stack_facts",
]

CollapseGoal = Literal["chain", "layer", "weights", "smallest", "fall"]
GOALS: tuple[CollapseGoal, ...] = ("chain", "layer", "weights", "smallest", "fall")
"""What rises: the ratio after all layers, that of the layers one by one, that of the bounds without
gamma, of the smallest residual; `fall` lets the residual fall, against lower bounds."""
CONVERGENCE, AS_WRITTEN = "convergence", "convergence-as-written"
DEEP = 40
"""How many layers a network has that is asked whether it converges."""
DEEP_SHARE = 5
"""Of a campaign's random networks one in so many is as deep as that: they take long."""
PER_SHAPE = 64
"""How many networks of one shape are drawn together."""
PER_CLIMB = 25
"""How many networks of one shape climb together."""
NOISE = 0.05
"""What is added to the free tensors before an ascent: an entry that is exactly zero may not move."""
ROUNDING_LOG = -9.0
"""The logarithm of the least residual that is evidence, relative to the terms it is made of."""
LARGEST_LOG = 300.0
"""Ratios end at 10 to this power."""
TEN = math.log(10.0)
SHARES = {"one-head": 2, "one-head-mlp": 2, "heads": 4, "heads-mlp": 4} | {
    "causal": 10, "skip-aligned": 2, "skip-aligned-mlp": 2, "skip": 10, "skip-orthogonal": 10,
}  # fmt: skip
"""Of a campaign's random networks one in so many is of a kind: those with one head suffice for the
published bound, those with a skip whose updates are aligned for the lower one."""
CLIMBS: tuple[tuple[str, CollapseGoal, int], ...] = (
    ("one-head", "chain", 4), ("one-head", "weights", 8), ("one-head", "smallest", 8),
    ("one-head-mlp", "chain", 4), ("one-head-mlp", "layer", 4),
    ("heads", "chain", 8), ("heads", "smallest", 8), ("heads-mlp", "chain", 8),
    ("skip-aligned", "fall", 2), ("skip-aligned-mlp", "fall", 2),
)  # fmt: skip
"""Kind, goal, and of how many of a campaign's paths one is such."""


def collapse_campaign(
    *, attacks: int, optimised: int, seed: int, bounds: Sequence[str] | None = None
) -> list[Job]:
    """Attacks of all kinds, such that every bound meets `attacks` random networks and `optimised`
    paths on which its conditions hold; and a search for what the conditions of convergence miss.

    `bounds` names those to attack; all of them otherwise.
    """
    jobs: list[Job] = []
    others = None if bounds is None else [name for name in bounds if name in COLLAPSE_BOUNDS]
    for place, (kind, share) in enumerate(SHARES.items() if others != [] else ()):
        if count := -(-attacks // share):
            own = 1000 * seed + place
            run = partial(random_collapse_attack, kind, count=count, seed=own, bounds=others)
            jobs.append(Job(f"rank collapse, {kind}", False, count, run))
    for place, (kind, goal, share) in enumerate(CLIMBS if others != [] else ()):
        if count := -(-optimised // share):
            run = partial(
                optimised_collapse_attack,
                kind,
                count=count,
                steps=STEPS,
                seed=1000 * seed + len(SHARES) + place,
                goal=goal,
                bounds=others,
            )
            jobs.append(Job(f"rank collapse, {kind}", True, count, run))
    if attacks and (bounds is None or {CONVERGENCE, AS_WRITTEN} & set(bounds)):
        count = -(-attacks // DEEP_SHARE)
        run = partial(convergence_attack, count=count, seed=seed)
        jobs.append(Job("rank collapse, convergence", False, count, run))
    return jobs


def random_collapse_attack(
    kind: str, *, count: int, seed: int, bounds: Sequence[str] | None = None
) -> dict[str, Attacked]:
    """Draw `count` networks of a kind, in many shapes, and set the bounds against them."""
    generator = torch.Generator().manual_seed(seed)
    wanted = _kind(kind)
    facts: list[StackFacts] = []
    while len(facts) < count:
        shape = draw_shape(wanted, generator=generator)
        batch = min(PER_SHAPE, count - len(facts))
        with torch.no_grad():
            stacks = Stacks(wanted, batch, shape, generator=generator)
            seen = stacks.run()
        facts += [fact for fact in stack_facts(stacks, seen) if evident(fact)]
    return judged_paths([(fact,) for fact in facts], bounds=bounds)


def optimised_collapse_attack(
    kind: str,
    *,
    count: int,
    steps: int,
    seed: int,
    goal: CollapseGoal = "chain",
    bounds: Sequence[str] | None = None,
) -> dict[str, Attacked]:
    """Draw `count` networks of a kind, in many shapes, and climb from there.

    The bounds are set against the start, the middle and the end of each path; a path counts as one
    attack.
    """
    generator = torch.Generator().manual_seed(seed)
    wanted = _kind(kind)
    paths: list[tuple[StackFacts, ...]] = []
    while len(paths) < count:
        shape = draw_shape(wanted, generator=generator)
        stacks = Stacks(wanted, min(PER_CLIMB, count - len(paths)), shape, generator=generator)
        with torch.no_grad():
            for free in stacks.free.values():
                noise = torch.randn(free.shape, generator=generator, dtype=free.dtype)
                free.add_(noise, alpha=NOISE)
        found = climb_stacks(stacks, steps=steps, goal=goal)
        paths += [path for path in found if any(map(evident, path))]
    return judged_paths(paths, bounds=bounds)


def climb_stacks(stacks: Stacks, *, steps: int, goal: CollapseGoal) -> list[tuple[StackFacts, ...]]:
    """Move inputs, weights and sizes by Adam; return each network's facts at start, middle, end."""
    ascent = torch.optim.Adam(stacks.parameters(), lr=RATE, maximize=True)
    stops: dict[int, list[StackFacts]] = {}
    places = (0, steps // 2, steps)
    for step in range(steps + 1):
        seen = stacks.run(smallest=goal == "smallest" or step in places)
        if step in places:
            stops[step] = stack_facts(stacks, seen)
        if step < steps:
            ascent.zero_grad()
            _height(seen, goal).sum().backward()
            ascent.step()
    return list(zip(*(stops[place] for place in places), strict=True))


def _height(seen: Seen, goal: CollapseGoal) -> Tensor:
    """What an ascent raises, one number per network, but for constants."""
    if goal == "fall":
        return seen.log_frobenius[:, 0] - seen.log_frobenius[:, -1]
    residual = seen.log_smallest if goal == "smallest" else seen.log_composite
    written = seen.value_output_1.amax(-1).log() + seen.value_output_inf.amax(-1).log()
    weight = seen.lipschitz.log() + seen.query_key.sum(-1).log() + 0.5 * written
    if goal in ("chain", "layer"):
        weight = weight + seen.joint_gamma.log()
    rise = residual[:, 1:] - 3.0 * residual[:, :-1] - weight
    depth = rise.shape[1]
    shares = [1.0 if goal == "layer" else 3.0 ** (depth - 1 - layer) for layer in range(depth)]
    return rise @ rise.new_tensor(shares)


def convergence_attack(*, count: int, seed: int) -> dict[str, Attacked]:
    """Draw deep networks and see whether the conditions for convergence keep what they promise.

    One head, no MLP, the same weights in all layers, few tokens and features. `convergence`: with
    c r^2 < 1, for the published c or the proved one, every layer's residual is below the one
    before it; the ratio is the largest r_{l+1} / r_l. `convergence-as-written`: the note's c < 1
    alone, which is false; the ratio is r_L / r_0, of networks outside of the true condition.
    """
    generator = torch.Generator().manual_seed(seed)
    true, written = Attacked(), Attacked()
    for done in range(0, count, PER_SHAPE):
        # Two tokens of width one first: growth is easiest there.
        most = (1, 4)[done // PER_SHAPE % 2]
        tokens, width = torch.randint(1, most + 1, (2,), generator=generator).tolist()
        shape = Shape(1 + tokens, width, 1, width, DEEP, 1, "none", shared=True)
        with torch.no_grad():
            batch = min(PER_SHAPE, count - done)
            stacks = Stacks(STACK_KINDS["one-head"], batch, shape, generator=generator)
            _bring_near_one(stacks, generator=generator)
            found = stack_facts(stacks, stacks.run(smallest=False))
        for facts in found:
            logs = [value for value in facts.log10_composite if math.isfinite(value)]
            if len(logs) < 2:
                continue
            if converges(facts) or converges(facts, constant="proved"):
                rise = max(after - before for before, after in pairwise(logs))
                true = true.with_(Attacked(within=Found(1, _power(rise), logs[-1], facts)))
            elif converges_as_written(facts) and len(logs) == DEEP + 1:
                case = Found(1, _power(logs[-1] - logs[0]), logs[-1], facts, failing=1)
                written = written.with_(Attacked(outside=case))
    return {CONVERGENCE: true, AS_WRITTEN: written}


def _bring_near_one(stacks: Stacks, *, generator: torch.Generator) -> None:
    """Scale outputs up by up to 10 and tokens by up to 100, and queries so that c is 1/8 to 2."""
    share = torch.rand(3, stacks.batch, 1, 1, generator=generator, dtype=torch.float64)
    stacks.sizes["output"] += math.log(10.0) * share[2][:, None, None]
    factors = [published_factor(facts) for facts in stack_facts(stacks, stacks.run(smallest=False))]
    logs = share.new_tensor([0.0 if f is None or math.isinf(f) else TEN * f for f in factors])
    wanted = math.log(2.0) * (4.0 * share[0] - 3.0)
    stacks.sizes["query"] += (wanted - logs[:, None, None])[:, None, None]
    stacks.sizes["tokens"] += math.log(100.0) * share[1]


def stack_facts(stacks: Stacks, seen: Seen) -> list[StackFacts]:
    """Return the facts of every network, as the bounds take them."""
    numbers: dict[str, Any] = {
        name: value.tolist() if isinstance(value := getattr(seen, name), Tensor) else None
        for name in Seen.__dataclass_fields__
    }

    def one(name: str, network: int, layer: int) -> float | None:
        return None if numbers[name] is None else numbers[name][network][layer]

    def residuals(name: str, network: int) -> tuple[float, ...]:
        return tuple(value / TEN for value in numbers[name][network])

    return [
        StackFacts(
            tokens=stacks.shape.tokens,
            layers=tuple(
                LayerFacts(
                    query_key=tuple(numbers["query_key"][i][l]),
                    value_output_1=tuple(numbers["value_output_1"][i][l]),
                    value_output_inf=tuple(numbers["value_output_inf"][i][l]),
                    scaling=stacks.scaling,
                    gamma=tuple(numbers["gamma"][i][l]),
                    joint_gamma=numbers["joint_gamma"][i][l],
                    lipschitz=numbers["lipschitz"][i][l],
                    alignment=one("alignment", i, l),
                    overlap=one("overlap", i, l),
                )
                for l in range(stacks.shape.depth)
            ),
            mask=stacks.kind.mask,
            skip=stacks.kind.skip,
            biased=stacks.kind.biased or stacks.kind.orthogonal,
            log10_composite=residuals("log_composite", i),
            log10_smallest=residuals("log_smallest", i),
            log10_frobenius=residuals("log_frobenius", i),
        )
        for i in range(stacks.batch)
    ]


def judged_paths(
    paths: Sequence[tuple[StackFacts, ...]], *, bounds: Sequence[str] | None = None
) -> dict[str, Attacked]:
    """Set the bounds against networks, each seen at one stop of its path or at several."""
    found: dict[str, Attacked] = {}
    paths = [tuple(filter(evident, path)) for path in paths]
    for name, bound_class in COLLAPSE_BOUNDS.items():
        bound = bound_class()
        if bound.side != "law" and (bounds is None or name in bounds):
            found[name] = _together(_path(bound, path) for path in paths)
    return found


def _together(paths: Iterable[Attacked]) -> Attacked:
    one = Attacked()
    for path in paths:
        one = one.with_(path)
    return one


def _path(bound: CollapseBound, path: Sequence[StackFacts]) -> Attacked:
    """The worst of a path, as one attack: where the conditions hold, if they do at some stop."""
    cases = [case for facts in path if (case := _case(bound, facts)) is not None]
    within = [case for case in cases if not case.failing]
    if not cases:
        return Attacked()
    worst = Found()
    for case in within or cases:
        worst = worst.with_(case)
    once = replace(worst, attacks=1)
    return Attacked(within=once) if within else Attacked(outside=once)


def _case(bound: CollapseBound, facts: StackFacts) -> Found | None:
    """The largest ratio over the layers, and how many conditions fail; None without evidence."""
    values, measured = bound.log10_values(facts), measured_residuals(facts, bound.measure)
    if values is None or not measured:
        return None
    sign = 1.0 if bound.side == "upper" else -1.0
    sites = [
        (sign * (there - said), there)
        for said, there in zip(values[1:], measured[1:], strict=True)
        if math.isfinite(there) and not math.isnan(said)
    ]
    if not sites:
        return None
    log, there = max(sites)
    failing = sum(not condition.holds for condition in bound.conditions(facts))
    return Found(1, _power(log), there, facts, failing)


def _power(log: float) -> float:
    """10^log, within the range of floats."""
    return math.inf if log == math.inf else 10.0 ** max(-LARGEST_LOG, min(LARGEST_LOG, log))


def evident(facts: StackFacts) -> bool:
    """Whether every residual stands well above the rounding of the step that made it.

    Without mask and skip the terms of a step are at most of the size that the weights allow,
    lambda scaling (sum_h |W_QK,h|_1) w r^3; otherwise of about the size of the residual before it.
    """
    cubic = facts.mask == "none" and not facts.skip
    for measured in (facts.log10_composite, facts.log10_smallest):
        for layer, before, after in zip(facts.layers, measured, measured[1:], strict=False):
            size = layer_weight(layer) + 3.0 * before if cubic else before
            if not (math.isfinite(after) and after >= size + ROUNDING_LOG):
                return False
    return True


def _kind(name: str) -> StackKind:
    if name not in STACK_KINDS:
        raise UnknownName("attack", name, STACK_KINDS)
    return STACK_KINDS[name]
