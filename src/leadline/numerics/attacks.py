"""The search for attention matrices that violate a bound, at random and by gradient ascent.

The heads of a `Kind` keep their facts while inputs and weights are moved, so to raise |A|_2 is to
raise |A|_2 over the bound. Norms are singular values in float64. A ratio is |A|_2 / bound for an
upper bound and bound / |A|_2 for a lower one: above 1 it is a violation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from leadline.errors import UnknownName
from leadline.numerics.attacked_heads import KINDS, Heads, Kind
from leadline.theory import BOUNDS, AttentionFacts

__all__ = ["Attacked", "Found", "climb", "merged", "optimised_attack", "random_attack"]

Goal = Literal["rise", "fall", "product"]

PRODUCT = "attention.product_norm"
DEPTH = 3
"""How many neighbours of a batch are multiplied to attack the bound of products."""
RATE = 0.1
"""The step of Adam, where free tensors are drawn with variance 1."""


@dataclass(frozen=True, slots=True)
class Found:
    """The largest ratio among some attacks, how many there were, and where it was."""

    attacks: int = 0
    ratio: float = 0.0
    norm: float = math.nan
    facts: AttentionFacts | None = None

    def with_(self, other: Found) -> Found:
        """Return the worse of the two, counting both."""
        worse = other if other.ratio > self.ratio else self
        return Found(self.attacks + other.attacks, worse.ratio, worse.norm, worse.facts)


@dataclass(frozen=True, slots=True)
class Attacked:
    """What attacks did to one bound: where its conditions hold, and where they do not."""

    within: Found = field(default_factory=Found)
    outside: Found = field(default_factory=Found)

    def with_(self, other: Attacked) -> Attacked:
        """Return both together."""
        return Attacked(self.within.with_(other.within), self.outside.with_(other.outside))


def random_attack(kind: str, *, count: int, seed: int) -> dict[str, Attacked]:
    """Draw `count` attention matrices of a kind, in four shapes, and set every bound against them."""
    generator = torch.Generator().manual_seed(seed)
    results: list[dict[str, Attacked]] = []
    for part in range(4):
        batch = count // 4 + (part < count % 4)
        if batch:
            n = int(torch.randint(1, 13, (), generator=generator))
            results.append(_judged(Heads(_kind(kind), batch, n, generator=generator)))
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
    return climb(Heads(_kind(kind), starts, n, generator=generator), steps=steps, goal=goal)


def climb(heads: Heads, *, steps: int, goal: Goal = "rise") -> dict[str, Attacked]:
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


def _per_path(worst: Found, first: Found) -> Found:
    """Count the paths once, not once per stop; whether conditions hold does not change on one."""
    return Found(first.attacks, worst.ratio, worst.norm, worst.facts)


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
def _judged(heads: Heads) -> dict[str, Attacked]:
    """Set every bound against the heads as they stand."""
    weights, logits = heads.attention()
    facts = heads.facts(weights, logits)
    norms = torch.linalg.svdvals(weights)[:, 0].tolist()
    products: list[float] = []
    if not heads.kind.cross and heads.batch >= DEPTH:
        products = torch.linalg.svdvals(_products(weights))[:, 0].tolist()
    found: dict[str, Attacked] = {}
    for name, bound_class in BOUNDS.items():
        bound, one = bound_class(), Attacked()
        measured = products if bound.quantity == PRODUCT else norms
        for norm, fact in zip(measured, facts, strict=False):
            value = bound.value(fact)
            if value is None:
                continue
            ratio = norm / value if bound.side == "upper" else value / norm
            case = Found(1, ratio, norm, fact)
            holds = bound.applies(fact)
            one = one.with_(Attacked(within=case) if holds else Attacked(outside=case))
        found[name] = one
    return found
