"""`leadline bounds --attack`: search for violations of the bounds and put them into a table."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from leadline.errors import InputError, Progress, UnknownName, no_progress
from leadline.instruments.attacks.result import AttackRow, AttackTable
from leadline.theory import BOUNDS, COLLAPSE_BOUNDS

__all__ = ["attack_bounds"]


_NOTE = "Deep Dive into Transformer Architecture, section 3"
_CONVERGENCE = {
    "convergence": (
        "when rank collapse is certain",
        "r' < r at every layer if c r² < 1, c the largest factor of collapse-proved",
        "from `collapse-proved`; with one head c = 4 γ β λ / √d_qk is never smaller",
    ),
    "convergence-as-written": (
        "the note's condition for collapse, false",
        "r_L < r if c < 1, c = 4 γ β H λ / √d_qk (false)",
        _NOTE,
    ),
}
"""Title, statement and source of the statements about convergence, which stand in no catalog."""


def attack_bounds(
    *,
    attacks: int,
    optimised: int,
    seed: int,
    names: Sequence[str] | None = None,
    progress: Progress = no_progress,
) -> AttackTable:
    """Search for violations of the named bounds, or of all, at random and by gradient ascent.

    Every bound is to meet `attacks` random and `optimised` climbing matrices or networks on which
    its assumptions hold; a statement that is known to be false meets those that miss its truth
    alone.
    """
    _check(attacks, optimised, names)
    from leadline.instruments.attacks.attention import Attacked, campaign, merged
    from leadline.instruments.attacks.collapse import collapse_campaign

    wanted = None if names is None else list(names)
    jobs = []
    if wanted is None or any(name in BOUNDS for name in wanted):
        jobs += campaign(attacks=attacks, optimised=optimised, seed=seed)
    jobs += collapse_campaign(attacks=attacks, optimised=optimised, seed=seed, bounds=wanted)
    total, finished = sum(job.count for job in jobs), 0
    results: dict[bool, dict[str, Attacked]] = {False: {}, True: {}}
    for job in jobs:
        how = "climbing" if job.optimised else "drawing"
        progress(f"{how} networks: {job.what}", finished, total)
        results[job.optimised] = merged([results[job.optimised], job.run()])
        finished += job.count
    rows = [
        _row(name, results[False].get(name, Attacked()), results[True].get(name, Attacked()))
        for name in dict.fromkeys([*results[False], *results[True]])
        if wanted is None or name in wanted
    ]
    return AttackTable(
        rows=tuple(sorted(rows, key=lambda row: (not row.violated, row.name))),
        asked_random=attacks,
        asked_optimised=optimised,
        drawn=sum(job.count for job in jobs if not job.optimised),
        climbed=sum(job.count for job in jobs if job.optimised),
        seed=seed,
        laws=tuple(
            name
            for name, bound in COLLAPSE_BOUNDS.items()
            if bound.side == "law" and (wanted is None or name in wanted)
        ),
    )


def _check(attacks: int, optimised: int, names: Sequence[str] | None) -> None:
    if attacks < 0 or optimised < 0 or not attacks + optimised:
        raise InputError(
            f"The search was given {attacks} random and {optimised} optimised attacks; neither "
            "number may be below 0, and at least one must be above 0."
        )
    known = [*BOUNDS.names(), *COLLAPSE_BOUNDS.names(), *_CONVERGENCE]
    for name in names or ():
        if name not in known:
            raise UnknownName("bound", name, known)


def _row(name: str, random: Any, optimised: Any) -> AttackRow:
    both = random.with_(optimised)
    if name in _CONVERGENCE:
        title, statement, source = _CONVERGENCE[name]
    else:
        bound: Any = BOUNDS.get(name) if name in BOUNDS else COLLAPSE_BOUNDS.get(name)
        title, statement, source = bound.title, bound.statement, bound.source
    facts = both.within.facts
    return AttackRow(
        name=name,
        title=title,
        statement=statement,
        source=source,
        random=random.within.attacks,
        optimised=optimised.within.attacks,
        ratio=both.within.ratio,
        outside=both.outside.attacks,
        outside_ratio=both.outside.ratio,
        because=_because(name, both.outside.facts),
        facts={} if facts is None else dataclasses.asdict(facts),
    )


def _because(name: str, facts: Any) -> tuple[str, ...]:
    """Say which assumptions fail for these facts."""
    if facts is None:
        return ()
    if name in _CONVERGENCE:
        return (_starts_too_large(facts),)
    bound: Any = BOUNDS.get(name) if name in BOUNDS else COLLAPSE_BOUNDS.get(name)
    return tuple(
        condition.because for condition in bound().conditions(facts) if not condition.holds
    )


def _starts_too_large(facts: Any) -> str:
    from leadline.theory.rank_collapse.collapse_published import published_factor

    factor = published_factor(facts)
    first = facts.log10_composite[0]
    assert factor is not None and math.isfinite(first)
    return (
        f"c = {10.0**factor:.3g}, and with the first residual r = {10.0**first:.3g} "
        f"c r² = {10.0 ** (factor + 2.0 * first):.3g} is not below 1"
    )
