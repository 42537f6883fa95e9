"""The search for networks that do not do what the conditions for convergence promise.

`convergence`: with c r^2 < 1, c the largest factor of `collapse-proved` over the layers, every
layer's residual is below the one before it; the ratio is the largest r_{l+1} / r_l. With one head
the published c is never the smaller one, so that networks which meet its condition are among them.
The tokens of every network are scaled so that c r^2 is below 1 and near it. At random and by
gradient ascent, which raises measured over predicted of every layer.

`convergence-as-written`: the note's c < 1 alone, which is false; the ratio is r_L / r_0 of deep
networks outside of the true condition.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from itertools import cycle, pairwise

import torch
from torch import Tensor

from leadline.instruments.attacks.attention import Attacked, WorstCase
from leadline.instruments.attacks.climbs import TEN, add_noise, climb_stacks, stack_facts
from leadline.instruments.attacks.evidence import BEYOND, power, until_overflow, worst_of
from leadline.instruments.attacks.shapes import (
    PER_CLIMB,
    PER_SHAPE,
    STACK_KINDS,
    StackShape,
    draw_shape,
)
from leadline.instruments.attacks.stacks import FactTensors, Stacks
from leadline.theory.rank_collapse import StackFacts
from leadline.theory.rank_collapse.collapse_proved import CollapseProved
from leadline.theory.rank_collapse.collapse_published import published_factor
from leadline.theory.rank_collapse.convergence import converges, converges_as_written

__all__ = [
    "AS_WRITTEN",
    "CONVERGENCE",
    "as_written_attack",
    "convergence_attack",
    "optimised_convergence_attack",
]

CONVERGENCE, AS_WRITTEN = "convergence", "convergence-as-written"
KINDS = ("one-head", "one-head-mlp", "heads", "heads-mlp")
"""The kinds of networks that the true condition is about."""
NEAREST, FARTHEST = 0.999, 0.01
"""Random networks are scaled to a c r^2 between these values, climbing ones to the first."""
DEEP = 40
"""The depth of the networks that test whether the note's condition makes them converge."""


def convergence_attack(*, count: int, seed: int) -> dict[str, Attacked]:
    """Draw networks until `count` of them meet the true condition, and see what they do."""
    generator = torch.Generator().manual_seed(seed)
    cases: list[WorstCase] = []
    for kind in cycle(KINDS):
        if len(cases) >= count:
            break
        shape = draw_shape(STACK_KINDS[kind], generator=generator)
        batch = min(PER_SHAPE, count - len(cases))
        with torch.no_grad():
            stacks = Stacks(STACK_KINDS[kind], batch, shape, generator=generator)
            share = torch.rand(batch, generator=generator, dtype=torch.float64)
            log_condition = math.log10(NEAREST) + share * math.log10(FARTHEST / NEAREST)
            cases += filter(None, map(_case, _near_one(stacks, log_condition=log_condition)))
    return {CONVERGENCE: _counted(cases)}


def optimised_convergence_attack(*, count: int, steps: int, seed: int) -> dict[str, Attacked]:
    """Let networks climb until `count` paths meet the true condition at some stop."""
    generator = torch.Generator().manual_seed(seed)
    cases: list[WorstCase] = []
    for kind in cycle(KINDS):
        if len(cases) >= count:
            break
        shape = draw_shape(STACK_KINDS[kind], generator=generator)
        batch = min(PER_CLIMB, count - len(cases))
        stacks = Stacks(STACK_KINDS[kind], batch, shape, generator=generator)
        add_noise(stacks, generator=generator)
        log_condition = torch.full((batch,), math.log10(NEAREST), dtype=torch.float64)
        look = partial(_look, log_condition=log_condition)
        for path in climb_stacks(stacks, steps=steps, goal="layer", look=look):
            if stops := list(filter(None, map(_case, path))):
                cases.append(worst_of(stops))
    return {CONVERGENCE: _counted(cases)}


def _counted(cases: Iterable[WorstCase]) -> Attacked:
    result = Attacked()
    for case in cases:
        result = result.with_(Attacked(within=case))
    return result


def _look(stacks: Stacks, _tensors: FactTensors, *, log_condition: Tensor) -> list[StackFacts]:
    with torch.no_grad():
        kept = stacks.sizes["tokens"].clone()
        facts = _near_one(stacks, log_condition=log_condition)
        stacks.sizes["tokens"].copy_(kept)
    return facts


def _near_one(stacks: Stacks, *, log_condition: Tensor) -> list[StackFacts]:
    """Scale the tokens so that log10 of c r^2 is `log_condition`, and return the facts.

    c may change with the tokens, so they are scaled twice, and the result is only near it.
    """
    for _ in range(2):
        facts = stack_facts(stacks, stacks.run(smallest=False))
        logs = log_condition.new_tensor([_log_condition(one) for one in facts])
        away = torch.where(logs.isfinite(), log_condition - logs, 0.0)
        stacks.sizes["tokens"] += 0.5 * TEN * away[:, None, None]
    return stack_facts(stacks, stacks.run(smallest=False))


def _log_condition(facts: StackFacts) -> float:
    """log10 of c r^2."""
    return max(CollapseProved().factors(facts)) + 2.0 * facts.log10_composite[0]


def _case(facts: StackFacts) -> WorstCase | None:
    """The largest rise of a network on which the condition holds; None where it does not."""
    facts = until_overflow(facts)
    logs = facts.log10_composite
    if not math.isfinite(logs[0]) or not converges(facts, constant="proved"):
        return None
    return WorstCase(1, power(max(map(_rise, pairwise(logs)))), logs[-1], facts)


def _rise(pair: tuple[float, float]) -> float:
    """log10 of r_{l+1} / r_l; what has vanished before and is so still does not rise."""
    before, after = pair
    rise = after - before
    return -math.inf if math.isnan(rise) else rise


def as_written_attack(*, count: int, seed: int) -> dict[str, Attacked]:
    """Draw `count` deep networks, and see what those do that meet the note's condition alone.

    One head, no MLP, the same weights in all layers, few tokens and features.
    """
    generator = torch.Generator().manual_seed(seed)
    result = Attacked()
    for first_drawn in range(0, count, PER_SHAPE):
        # Two tokens of width one first: growth is easiest there.
        most = (1, 4)[first_drawn // PER_SHAPE % 2]
        tokens, width = torch.randint(1, most + 1, (2,), generator=generator).tolist()
        shape = StackShape(1 + tokens, width, 1, width, DEEP, 1, "none", shared=True)
        with torch.no_grad():
            batch = min(PER_SHAPE, count - first_drawn)
            stacks = Stacks(STACK_KINDS["one-head"], batch, shape, generator=generator)
            _bring_near_one(stacks, generator=generator)
            networks = stack_facts(stacks, stacks.run(smallest=False))
        for facts in networks:
            first, last = facts.log10_composite[0], min(facts.log10_composite[-1], BEYOND)
            if not math.isfinite(first) or math.isnan(last):
                continue
            if converges_as_written(facts) and not converges(facts, constant="proved"):
                case = WorstCase(1, power(last - first), last, facts, failing=1)
                result = result.with_(Attacked(outside=case))
    return {AS_WRITTEN: result}


def _bring_near_one(stacks: Stacks, *, generator: torch.Generator) -> None:
    """Scale outputs up by up to 10 and tokens by up to 100, and queries so that c is 1/8 to 2."""
    share = torch.rand(3, stacks.batch, 1, 1, generator=generator, dtype=torch.float64)
    stacks.sizes["output"] += math.log(10.0) * share[2][:, None, None]
    factors = [published_factor(facts) for facts in stack_facts(stacks, stacks.run(smallest=False))]
    logs = share.new_tensor([0.0 if f is None or math.isinf(f) else TEN * f for f in factors])
    wanted = math.log(2.0) * (4.0 * share[0] - 3.0)
    stacks.sizes["query"] += (wanted - logs[:, None, None])[:, None, None]
    stacks.sizes["tokens"] += math.log(100.0) * share[1]
