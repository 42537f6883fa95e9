"""What each process reads of a sampled update, and what all of them together say.

    means        of tokens or examples: sums over sums of how many, never averages of ratios
    largest      the largest of all, room for float16 the smallest
    gradient     at the stream: sqrt(sum |g|^2) / P. Each of P processes takes the gradient of its
                 own loss, and the loss of the update is their mean.
    loss         the mean over processes: what the gradient of the update is the gradient of
    weights      of sharded parameters: sums of squares; of replicated ones those of the first

What is read of the first example alone is that of the first process.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields, replace
from typing import Any

from leadline.instruments.passes.probes.extremes import LARGEST, ROOM
from leadline.instruments.passes.probes.gradient import STREAM
from leadline.instruments.passes.processes.mailbox import Message
from leadline.lab.watch.weights.optimizers import GroupSums
from leadline.record import Reading, Site

__all__ = ["RankPart", "digest", "joined_layers", "joined_losses", "joined_sums", "same_gradients"]

_WIDTH = len(fields(GroupSums))
SAME = 1e-6
"""Gradients of replicas differ by less than this."""


@dataclass
class RankPart:
    """What one process read: sums of its weights, readings of its layers, its losses."""

    sums: dict[Site, GroupSums] | None = None
    layers: list[Reading] = field(default_factory=list[Reading])
    counts: dict[tuple[str, Site], float] = field(default_factory=dict[tuple[str, Site], float])
    """Quantity and site of a mean, and how many numbers it is the mean of."""
    losses: list[Reading] = field(default_factory=list[Reading])

    def message(self, sites: Sequence[Site], notes: Sequence[str]) -> Message:
        """The part as numbers, with digests of what they are numbers of."""
        sums = self.sums or {}
        numbers = [value for site in sites for value in astuple(sums.get(site, GroupSums()))]
        for one in self.layers:
            numbers += [one.value, self.counts.get((one.quantity, one.site), 0.0)]
        for one in self.losses:
            numbers += [float(one.step), one.value]
        facts: dict[str, Any] = {
            "sites": None if self.sums is None else digest(sites),
            "groups": len(sites),
            "layers": digest(map(_label, self.layers)),
            "rows": len(self.layers),
            "notes": list(notes),
        }
        return Message(facts, numbers)


def digest(labels: Iterable[object]) -> str:
    """The same for the same labels in the same order."""
    return hashlib.sha256("\n".join(map(repr, labels)).encode()).hexdigest()[:16]


def _label(reading: Reading) -> tuple[str, Site, str]:
    return reading.quantity, reading.site, reading.statistic


def joined_sums(
    own: Mapping[Site, GroupSums], messages: Iterable[Message], sites: Sequence[Site]
) -> dict[Site, GroupSums] | None:
    """The sums over all processes; None where one of them has none, or has other groups."""
    whole = {site: astuple(own.get(site, GroupSums())) for site in sites}
    for message in messages:
        if message.facts["sites"] != digest(sites):
            return None
        for at, site in enumerate(sites):
            there = message.numbers[at * _WIDTH : (at + 1) * _WIDTH]
            whole[site] = tuple(a + b for a, b in zip(whole[site], there, strict=True))
    # Groups in which nobody found anything, such as frozen ones, are not read.
    return {site: GroupSums(*values) for site, values in whole.items() if any(values)}


def same_gradients(
    own: Mapping[Site, GroupSums] | None, messages: Iterable[Message], sites: Sequence[Site]
) -> bool:
    """Whether all processes took the same gradient, as those that train one model together do."""
    if own is None:
        return False
    mine = [own.get(site, GroupSums()).gradient for site in sites]
    for message in messages:
        if message.facts["sites"] != digest(sites):
            return False
        theirs = [message.numbers[at * _WIDTH] for at in range(len(sites))]
        for one, other in zip(mine, theirs, strict=True):
            is_same = one == other or (math.isnan(one) and math.isnan(other))
            if not is_same and not math.isclose(one, other, rel_tol=SAME):
                return False
    return True


def joined_layers(own: RankPart, messages: Sequence[Message]) -> list[Reading] | None:
    """The readings of the layers over all processes; None where they read different things."""
    labels = digest(map(_label, own.layers))
    tables: list[list[tuple[float, float]]] = [
        [(one.value, own.counts.get((one.quantity, one.site), 0.0)) for one in own.layers]
    ]
    for message in messages:
        if message.facts["layers"] != labels:
            return None
        first = message.facts["groups"] * _WIDTH
        numbers = message.numbers[first : first + 2 * message.facts["rows"]]
        tables.append(list(zip(numbers[::2], numbers[1::2], strict=True)))
    return [
        replace(one, value=_joined(one.quantity, rows))
        for one, rows in zip(own.layers, zip(*tables, strict=True), strict=True)
    ]


def _joined(quantity: str, rows: Sequence[tuple[float, float]]) -> float:
    values = [value for value, _ in rows]
    if quantity in (LARGEST.name, ROOM.name):
        way = max if quantity == LARGEST.name else min
        return math.nan if any(map(math.isnan, values)) else way(values)
    if quantity == STREAM.name:
        return math.sqrt(sum(value * value for value in values)) / len(values)
    count = sum(weight for _, weight in rows)
    if not rows[0][1] or not count:
        return values[0]
    return sum(value * weight for value, weight in rows if weight) / count


def joined_losses(own: Sequence[Reading], messages: Iterable[Message]) -> list[Reading]:
    """The mean loss of every update that all processes know."""
    tables: list[dict[int, float]] = []
    for message in messages:
        first = message.facts["groups"] * _WIDTH + 2 * message.facts["rows"]
        numbers = message.numbers[first:]
        tables.append(
            {int(step): value for step, value in zip(numbers[::2], numbers[1::2], strict=True)}
        )
    whole: list[Reading] = []
    for one in own:
        values = [one.value, *(table[one.step] for table in tables if one.step in table)]
        complete = len(values) == len(tables) + 1
        whole.append(replace(one, value=sum(values) / len(values)) if complete else one)
    return whole
