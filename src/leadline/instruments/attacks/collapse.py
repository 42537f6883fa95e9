"""The search for self-attention networks that violate a bound on rank collapse.

At random: networks of many shapes, sizes and structures. By gradient ascent: see `climbs`. Every
bound, also that of a plug-in, is set against every network that was drawn or reached; `evidence`
says what counts as evidence and how it is judged. Networks that are no evidence are drawn anew.
Laws are not attacked.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from leadline.errors import UnknownName
from leadline.instruments.attacks.attention import STEPS, Attacked, AttackJob
from leadline.instruments.attacks.climbs import (
    CollapseGoal,
    Path,
    add_noise,
    climb_stacks,
    stack_facts,
)
from leadline.instruments.attacks.convergence import (
    AS_WRITTEN,
    CONVERGENCE,
    as_written_attack,
    convergence_attack,
    optimised_convergence_attack,
)
from leadline.instruments.attacks.evidence import evident, judged_paths
from leadline.instruments.attacks.shapes import (
    PER_CLIMB,
    PER_SHAPE,
    STACK_KINDS,
    StackKind,
    draw_shape,
)
from leadline.instruments.attacks.stacks import Stacks
from leadline.theory.rank_collapse import COLLAPSE_BOUNDS, StackFacts
from leadline.theory.rank_collapse.bound import CollapseSide

__all__ = ["collapse_campaign", "optimised_collapse_attack", "random_collapse_attack"]

DEEP_SHARE = 5
"""Of a campaign's random networks one in so many is a deep one against the note's condition."""
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
"""Kind, goal, and share: one in so many of a campaign's paths is of this kind and goal."""


def collapse_campaign(
    *, attacks: int, optimised: int, seed: int, bounds: Sequence[str] | None = None
) -> list[AttackJob]:
    """Attacks of all kinds, such that every bound meets `attacks` random networks and `optimised`
    paths on which its conditions hold, and so does the condition for convergence; and a search for
    what the note's condition misses.

    `bounds` names those to attack; all of them otherwise.
    """
    jobs: list[AttackJob] = []
    others = None if bounds is None else [name for name in bounds if name in COLLAPSE_BOUNDS]
    for place, (kind, share) in enumerate(SHARES.items() if others != [] else ()):
        if count := -(-attacks // share):
            kind_seed = 1000 * seed + place
            run = partial(random_collapse_attack, kind, count=count, seed=kind_seed, bounds=others)
            jobs.append(AttackJob(f"rank collapse, {kind}", False, count, run))
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
            jobs.append(AttackJob(f"rank collapse, {kind}", True, count, run))
    return jobs + _convergence_jobs(attacks, optimised, seed=seed, bounds=bounds)


def _convergence_jobs(
    attacks: int, optimised: int, *, seed: int, bounds: Sequence[str] | None
) -> list[AttackJob]:
    jobs: list[AttackJob] = []
    if bounds is None or CONVERGENCE in bounds:
        what = "rank collapse, convergence"
        if attacks:
            run = partial(convergence_attack, count=attacks, seed=seed)
            jobs.append(AttackJob(what, False, attacks, run))
        if optimised:
            climb = partial(optimised_convergence_attack, count=optimised, steps=STEPS, seed=seed)
            jobs.append(AttackJob(what, True, optimised, climb))
    if attacks and (bounds is None or AS_WRITTEN in bounds):
        count = -(-attacks // DEEP_SHARE)
        run = partial(as_written_attack, count=count, seed=seed)
        jobs.append(AttackJob("rank collapse, convergence as written", False, count, run))
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
            tensors = stacks.run()
        facts += [fact for fact in stack_facts(stacks, tensors) if evident(fact, _side(wanted))]
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
    paths: list[Path] = []
    while len(paths) < count:
        shape = draw_shape(wanted, generator=generator)
        stacks = Stacks(wanted, min(PER_CLIMB, count - len(paths)), shape, generator=generator)
        add_noise(stacks, generator=generator)
        climbs = climb_stacks(stacks, steps=steps, goal=goal)
        paths += [path for path in climbs if any(evident(one, _side(wanted)) for one in path)]
    return judged_paths(paths, bounds=bounds)


def _side(kind: StackKind) -> CollapseSide:
    """Which bounds the networks of a kind are drawn against."""
    return "lower" if kind.skip else "upper"


def _kind(name: str) -> StackKind:
    if name not in STACK_KINDS:
        raise UnknownName("attack", name, STACK_KINDS)
    return STACK_KINDS[name]
