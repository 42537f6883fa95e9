"""What a connection declares of itself, proved on random streams and updates.

A fact holds whatever the weights are, so it must hold at the start and with stirred weights;
`starts_as` is about the start alone. A fact that holds and is not declared fails too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from leadline.parts.connections import CONNECTIONS, Connection
from leadline.testing.conformance._case import STIR, WIDTH
from leadline.testing.conformance._check import Question, closeness, require
from leadline.testing.conformance._walk import EPS, Facts, WalkStep, relative_miss, walk

__all__ = ["questions"]

MIXING_MISS = 1e-6
FAR_MIXING_MISS = 1e-2
"""How far rows and columns of a doubly stochastic matrix may be from 1, and far from the start."""
LITTLE = 0.05
"""Standard deviation of a little move of the weights."""
AMPLIFIED = 1e-3
"""By how much, without updates, the stream must grow to count as amplified."""
EXAMPLES, TOKENS = 64, 64
"""For variances: 65,536 values, so that five standard errors are below 3 %."""
VARIANCE = 0.03
"""How far a variance of 1 may be off."""
DEEP = 24
"""Layers of the stack whose first and last writes are compared."""


def questions(facts: Facts) -> list[Question]:
    """Return the checks of the facts, by the names under which they are declared."""
    return [
        ("keeps_identity", lambda: _keeps_identity(facts)),
        ("starts_as", lambda: _starts_as(facts)),
        ("keeps_variance", lambda: _keeps_variance(facts)),
        ("mixes", lambda: _mixes(facts)),
        ("varies", lambda: _varies(facts)),
        ("amplifies", lambda: _amplifies(facts)),
    ]


def _keeps_identity(facts: Facts) -> str:
    def holds(writes: list[WalkStep]) -> bool:
        with torch.no_grad():
            return all(
                _same(w, w.connection.write(w.before, torch.zeros_like(w.update))) for w in writes
            )

    return facts.judge("keeps_identity", facts.declared.keeps_identity, holds)


def _same(write: WalkStep, after: Any) -> bool:
    """Whether a write left the stream as it was: exactly; lanes, which are summed, to rounding."""
    before, now = write.stream(write.before), write.stream(after)
    if write.connection.lanes > 1:
        return relative_miss(now, before, before) <= EPS
    return torch.equal(now, before)


def _starts_as(facts: Facts) -> str:
    """In evaluation and in training alike: what is dropped at random is neither of the two."""
    training = list(walk(facts.model().train(), 64, 2))
    identity = all(_begins(writes, _same_as_before) for writes in (facts.fresh, training))
    plain = all(_begins(writes, _plain) for writes in (facts.fresh, training))
    start = "identity" if identity else "plain" if plain else None
    declared = facts.declared.starts_as
    meaning = {
        "identity": "the update adds nothing at the start",
        "plain": "at the start it is x + u",
        None: "at the start it is neither the identity nor x + u",
    }
    require(
        start == declared, f"starts_as is {declared!r}, and {meaning[start]}: declare {start!r}"
    )
    return meaning[start]


def _begins(writes: list[WalkStep], like: Callable[[WalkStep], bool]) -> bool:
    """Whether all writes are alike, and the stream is closed as it stands."""
    last = writes[-1]
    with torch.no_grad():
        stream = last.stream(last.after)
        closed = last.closing.close(last.after)
        return relative_miss(closed, stream, stream) <= EPS and all(map(like, writes))


def _same_as_before(write: WalkStep) -> bool:
    return _same(write, write.after)


def _plain(write: WalkStep) -> bool:
    before, after = write.stream(write.before), write.stream(write.after)
    return relative_miss(before + write.update, after, before) <= EPS


def _keeps_variance(facts: Facts) -> str:
    """The variance after every write, of many independent values of unit variance."""
    variances: list[float] = []
    for std in (0.0, STIR):
        writes = walk(facts.model(std=std), EXAMPLES, TOKENS)
        variances.append(
            max(
                (float(w.connection.stream(w.after).var()) for w in writes),
                key=lambda v: abs(v - 1),
            )
        )
    start, later = (abs(v - 1) <= VARIANCE for v in variances)
    summary = (
        f"variance {variances[0]:.3g} at the start, {variances[1]:.3g} when the weights have moved"
    )
    if facts.declared.keeps_variance:
        require(start and later, f"keeps_variance is declared, and a write gives {summary}")
    else:
        require(
            not (start and later), f"keeps_variance holds for all weights ({summary}): declare it"
        )
    return summary


def _mixes(facts: Facts) -> str:
    """Rows and columns, at the start, with weights moved a little, and moved much.

    An iteration that ends after some steps is exact only near the start, so what is moved much is
    only asked to be near.
    """
    declared = facts.declared
    if not hasattr(declared, "mixing"):
        require(declared.mixes is None, "mixes is declared and there is no method mixing")
        return "nothing to mix"
    walks = {
        "at the start": (facts.fresh, MIXING_MISS),
        "moved a little": (list(walk(facts.model(std=LITTLE), 4, 6)), MIXING_MISS),
        "moved much": (facts.stirred, FAR_MIXING_MISS),
    }
    misses: list[str] = []
    holds = True
    for name, (writes, tolerance) in walks.items():
        off, lowest = _sums(writes)
        holds &= off <= tolerance and lowest >= 0
        misses.append(f"{off:.1g} {name}" + (f" (entry {lowest:.2g})" if lowest < 0 else ""))
    summary = f"sums off 1 by {', '.join(misses)}"
    if declared.mixes is None:
        require(not holds, f"mixing is doubly stochastic for all weights ({summary}): declare it")
        return f"not doubly stochastic: {summary}"
    require(holds, f"mixing is not doubly stochastic: {summary}")
    return f"doubly stochastic: {summary}"


def _sums(writes: list[WalkStep]) -> tuple[float, float]:
    """How far any row or column is from 1, and the lowest entry."""
    off, lowest = 0.0, 0.0
    for write in writes:
        with torch.no_grad():
            matrix: Tensor = write.connection.mixing(write.before)  # type: ignore[operator]
        lanes = write.connection.lanes
        require(
            list(matrix.shape[-2:]) == [lanes, lanes],
            f"mixing gives {list(matrix.shape)}, not [..., {lanes}, {lanes}]",
        )
        sums = torch.cat([matrix.sum(-1).flatten(), matrix.sum(-2).flatten()])
        off = max(off, float((sums - 1).abs().max()))
        lowest = min(lowest, float(matrix.min()))
    return off, lowest


def _varies(facts: Facts) -> str:
    """The same stream and updates through one layer, at several depths, with the same draws."""
    sublayers = facts.declared.place.sublayers
    try:
        first, *later_layers = [
            _layer(facts, layer, sublayers) for layer in (1, 2, DEEP // 2, DEEP)
        ]
    except (RuntimeError, ValueError, IndexError):
        return "not compared: late layers need all that came before"
    differs = any(
        closeness(a, b) > 1e-5 for layer in later_layers for a, b in zip(first, layer, strict=True)
    )
    if facts.declared.varies:
        require(differs, f"varies is declared, and all of {DEEP} layers write the same")
    else:
        require(not differs, f"varies is not declared, and the layers of {DEEP} write differently")
    return "from layer to layer" if differs else "the same in all layers"


def _layer(facts: Facts, layer: int, sublayers: int) -> list[Tensor]:
    """The stream after every write of one layer, in evaluation and in training mode."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(64, 3, WIDTH, generator=generator)
    updates = [torch.randn(x.shape, generator=generator) for _ in range(sublayers)]
    connections = [_at(facts, layer, number, sublayers) for number in range(1, sublayers + 1)]
    streams: list[Tensor] = []
    for training in (False, True):
        torch.manual_seed(4)
        with torch.no_grad():
            state = connections[0].open(x)
            for connection, update in zip(connections, updates, strict=True):
                state = connection.train(training).write(state, update)
                streams.append(connection.stream(state))
    return streams


def _at(facts: Facts, layer: int, sublayer: int, sublayers: int) -> Connection:
    """The connection of a place, with the random numbers that it would have at any other."""
    place = replace(
        facts.declared.place, depth=DEEP, layer=layer, sublayer=sublayer, sublayers=sublayers
    )
    torch.manual_seed(0)
    connection: Connection = CONNECTIONS.build(facts.case.choice, place=place)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for _, weight in connection.weights():
            weight.copy_(0.1 * torch.randn(weight.shape, generator=generator))
    return connection


def _amplifies(facts: Facts) -> str:
    """A stream to which nothing is written, through the whole stack and past all norms."""
    model = facts.model()
    largest = 0.0
    with torch.no_grad():
        state = model.first.open(facts.fresh[0].update)
        for sublayer in model.sublayers():
            c = sublayer.connection
            after = c.write(state, torch.zeros_like(facts.fresh[0].update))
            largest = max(largest, float(c.stream(after).norm() / c.stream(state).norm()))
            state = after
    amplifies = largest > 1 + AMPLIFIED
    summary = f"without updates the stream is {largest:.4g} times as long after a write, at most"
    if facts.declared.amplifies:
        require(amplifies, f"amplifies is declared, and {summary}")
    else:
        require(not amplifies, f"amplifies is not declared, and {summary}")
    return summary
