"""The search for attention matrices that violate a bound, at random and by gradient ascent.

The heads of a `Kind` keep their facts while inputs and weights are moved, so to raise |A|_2 is to
raise |A|_2 over the bound. Norms are singular values in float64. A ratio is |A|_2 / bound for an
upper bound and bound / |A|_2 for a lower one: above 1 it is a violation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from leadline.errors import UnknownName
from leadline.instruments.attacks.heads import KINDS, DrawnHeads, Kind
from leadline.theory import BOUNDS

__all__ = [
    "AttackJob",
    "Attacked",
    "WorstCase",
    "campaign",
    "climb",
    "merged",
    "optimised_attack",
    "random_attack",
]

Goal = Literal["rise", "fall", "product"]

PRODUCT = "attention.product_norm"
DEPTH = 3
"""How many neighbours of a batch are multiplied to attack the bound of products."""
RATE = 0.1
"""The step of Adam, where free tensors are drawn with variance 1."""
STEPS = 50
"""How many steps an ascent of a campaign has."""
FEW_MEET_IT = {"as-the-note": 2, "as-the-note-rotary": 2} | dict.fromkeys(
    ("as-the-note-causal", "causal", "causal-rotary", "causal-sink"), 4
)
"""A kind's share: it gets one in so many of the attacks on a bound, 6 unless listed here. The
bounds that only these kinds meet would get too few attacks otherwise."""


@dataclass(frozen=True, slots=True)
class WorstCase:
    """The worst ratio among some attacks, how many there were, and where it was.

    `norm` is what was measured there: a norm, or the logarithm to base ten of a residual.
    `failing` counts the conditions that fail there. The worst is the largest, but a violation with
    fewer failing conditions is worse than one with more: it says more.
    """

    attacks: int = 0
    ratio: float = 0.0
    norm: float = math.nan
    facts: Any = None
    """`AttentionFacts` or `StackFacts`."""
    failing: int = 0

    def with_(self, other: WorstCase) -> WorstCase:
        """Return the worse of the two, counting both."""
        worse = other if other._rank() > self._rank() else self
        return replace(worse, attacks=self.attacks + other.attacks)

    def _rank(self) -> tuple[float, float]:
        return (-self.failing if self.ratio > 1.0 else -math.inf, self.ratio)


@dataclass(frozen=True, slots=True)
class Attacked:
    """What attacks did to one bound: where its conditions hold, and where they do not."""

    within: WorstCase = field(default_factory=WorstCase)
    outside: WorstCase = field(default_factory=WorstCase)

    def with_(self, other: Attacked) -> Attacked:
        """Return both together."""
        return Attacked(self.within.with_(other.within), self.outside.with_(other.outside))


@dataclass(frozen=True, slots=True)
class AttackJob:
    """A part of a campaign: what is attacked, how, how often, and the attack itself."""

    what: str
    optimised: bool
    count: int
    run: Callable[[], dict[str, Attacked]]


def campaign(*, attacks: int, optimised: int, seed: int) -> list[AttackJob]:
    """Attacks of all kinds, such that every bound meets `attacks` random matrices and `optimised`
    paths on which its conditions hold."""
    jobs: list[AttackJob] = []
    for place, kind in enumerate(KINDS):
        share, kind_seed = FEW_MEET_IT.get(kind, 6), 1000 * seed + place
        count, starts = -(-attacks // share), -(-optimised // share)
        if count:
            run = partial(random_attack, kind, count=count, seed=kind_seed)
            jobs.append(AttackJob(f"attention, {kind}", False, count, run))
        if starts:
            run = partial(optimised_attack, kind, steps=STEPS, seed=kind_seed, starts=starts)
            jobs.append(AttackJob(f"attention, {kind}", True, starts, run))
    goals: tuple[tuple[str, Goal], ...] = (
        ("open", "fall"), ("random", "fall"), ("open", "product"), ("causal", "product"),
    )  # fmt: skip
    for place, (kind, goal) in enumerate(goals, start=len(KINDS)):
        kind_seed, starts = 1000 * seed + place, -(-optimised // 2)
        if starts:
            run = partial(
                optimised_attack, kind, steps=STEPS, seed=kind_seed, starts=starts, goal=goal
            )
            jobs.append(AttackJob(f"attention, {kind}", True, starts, run))
    return jobs


def random_attack(kind: str, *, count: int, seed: int) -> dict[str, Attacked]:
    """Draw `count` attention matrices of a kind, in four shapes, and set every bound against them."""
    generator = torch.Generator().manual_seed(seed)
    results: list[dict[str, Attacked]] = []
    for part in range(4):
        batch = count // 4 + (part < count % 4)
        if batch:
            n = int(torch.randint(1, 13, (), generator=generator))
            results.append(_judged(DrawnHeads(_kind(kind), batch, n, generator=generator)))
    return merged(results)


def optimised_attack(
    kind: str,
    *,
    steps: int,
    seed: int,
    starts: int = 24,
    n: int = 6,
    goal: Goal = "rise",
) -> dict[str, Attacked]:
    """Draw `starts` heads of a kind, n tokens long, and `climb` from there."""
    generator = torch.Generator().manual_seed(seed)
    return climb(DrawnHeads(_kind(kind), starts, n, generator=generator), steps=steps, goal=goal)


def climb(heads: DrawnHeads, *, steps: int, goal: Goal = "rise") -> dict[str, Attacked]:
    """Move inputs and weights by Adam, so that the norms rise or fall, or products of three rise.

    Every bound is set against the start, the middle and the end of each path; a path counts as
    one attack. Falling norms attack lower bounds.
    """
    ascent = torch.optim.Adam(list(heads.free.values()), lr=RATE, maximize=goal != "fall")
    stops = [_judged(heads)]
    for step in range(1, steps + 1):
        weights, _ = heads.attention()
        reached = _products(weights) if goal == "product" else weights
        ascent.zero_grad()
        torch.linalg.matrix_norm(reached, ord=2).log().sum().backward()
        ascent.step()
        if step in (steps // 2, steps):
            stops.append(_judged(heads))
    together = merged(stops)
    return {
        name: Attacked(
            _per_path(one.within, stops[0][name].within),
            _per_path(one.outside, stops[0][name].outside),
        )
        for name, one in together.items()
    }


def merged(results: Iterable[dict[str, Attacked]]) -> dict[str, Attacked]:
    """Return the worst of several attacks, bound by bound."""
    together: dict[str, Attacked] = {}
    for result in results:
        for name, one in result.items():
            together[name] = together.get(name, Attacked()).with_(one)
    return together


def _per_path(worst: WorstCase, first: WorstCase) -> WorstCase:
    """Count the paths once, not once per stop; whether conditions hold does not change on one."""
    return replace(worst, attacks=first.attacks)


def _kind(name: str) -> Kind:
    if name not in KINDS:
        raise UnknownName("attack", name, KINDS)
    return KINDS[name]


def _products(weights: Tensor) -> Tensor:
    """Multiply the matrices of a batch in groups of neighbours, the first rightmost."""
    groups = weights[: len(weights) // DEPTH * DEPTH].unflatten(0, (-1, DEPTH))
    product = groups[:, 0]
    for step in range(1, DEPTH):
        product = groups[:, step] @ product
    return product


@torch.no_grad()
def _judged(heads: DrawnHeads) -> dict[str, Attacked]:
    """Set every bound against the heads as they stand."""
    weights, logits = heads.attention()
    facts = heads.facts(weights, logits)
    norms = torch.linalg.svdvals(weights)[:, 0].tolist()
    products: list[float] = []
    if not heads.kind.cross and heads.batch >= DEPTH:
        products = torch.linalg.svdvals(_products(weights))[:, 0].tolist()
    results: dict[str, Attacked] = {}
    for name, bound_class in BOUNDS.items():
        bound, attacked = bound_class(), Attacked()
        measured = products if bound.quantity == PRODUCT else norms
        for norm, fact in zip(measured, facts, strict=False):
            value = bound.value(fact)
            if value is None or math.isnan(value):
                continue
            ratio = norm / value if bound.side == "upper" else value / norm
            failing = sum(not condition.holds for condition in bound.conditions(fact))
            case = WorstCase(1, ratio, norm, fact, failing)
            attacked = attacked.with_(Attacked(outside=case) if failing else Attacked(within=case))
        results[name] = attacked
    return results
