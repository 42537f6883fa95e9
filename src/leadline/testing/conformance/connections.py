"""What a connection declares of itself, proved on random streams and updates.

A random stream is opened and written to by every connection of a stack in turn, with random
updates; all facts are read from these writes. A fact holds whatever the weights are, so it must
hold at the start and with stirred weights; `starts_as` is about the start alone. A fact that
holds and is not declared fails too: a declaration is no matter of modesty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from leadline.parts import Transformer
from leadline.parts.connections import CONNECTIONS, Connection
from leadline.testing.conformance._case import STIR, WIDTH, Case, stir
from leadline.testing.conformance._check import Question, closeness, require

__all__ = ["questions"]

EPS = 4 * torch.finfo(torch.float32).eps
"""How far a float32 stream may be off, of its own size: as the balance of an anatomy."""
MIXED = 1e-6
MIXED_FAR = 1e-2
"""How far rows and columns of a doubly stochastic matrix may be from 1, and far from the start."""
LITTLE = 0.05
"""Standard deviation of a little move of the weights."""
AMPLIFIED = 1e-3
"""How much longer the stream must grow without updates to count as amplified."""
DEPTH = 8
EXAMPLES, TOKENS = 128, 64
"""For variances: 131,072 values, so that five standard errors are 2 %."""
VARIANCE = 0.02
DEEP = 24
"""Layers of the stack whose first and last writes are compared."""


@dataclass(frozen=True)
class Write:
    """One write of the walk through a stack; `closing` is the connection of the last one."""

    connection: Connection
    closing: Connection
    before: Any
    update: Tensor
    after: Any

    def seen(self, state: Any) -> Tensor:
        """The stream in a state; of lanes, what they close to."""
        if self.connection.lanes > 1:
            return self.closing.close(state)
        return self.connection.stream(state)


class Facts:
    """The writes that the checks of one connection share."""

    def __init__(self, case: Case) -> None:
        self.case = case

    @property
    def declared(self) -> Connection:
        """A connection, for its own word: options may change what it declares."""
        return self.case.fresh.first

    def model(self, *, std: float = 0.0) -> Transformer:
        """A stack whose connections, and nothing else, have had their weights moved."""
        model = self.case.build(depth=DEPTH)
        for number, sublayer in enumerate(model.sublayers()):
            stir(nn.ModuleDict({str(number): sublayer.connection}), std)
        return model

    @cached_property
    def fresh(self) -> list[Write]:
        return list(_walk(self.model(), 4, 6))

    @cached_property
    def stirred(self) -> list[Write]:
        return list(_walk(self.model(std=STIR), 4, 6))

    def judge(self, name: str, declared: bool, holds: Callable[[list[Write]], bool]) -> str:
        """Whether a fact holds for all weights, as it was declared to."""
        start, later = holds(self.fresh), holds(self.stirred)
        if declared:
            require(start, f"{name} is declared and does not hold at the start")
            require(later, f"{name} is declared and does not hold when the weights have moved")
            return "declared, and it holds"
        require(not (start and later), f"{name} holds for all weights and is not declared")
        return "not declared, and it does not hold" + (" once the weights move" if start else "")


def questions(case: Case) -> list[Question]:
    """The checks of a connection's own word."""
    facts = Facts(case)
    return [
        ("declarations", lambda: _declarations(facts)),
        ("states", lambda: _states(facts)),
        ("split", lambda: _split(facts)),
        ("keep and gain", lambda: _keep_and_gain(facts)),
        ("keeps_identity", lambda: _keeps_identity(facts)),
        ("starts_as", lambda: _starts_as(facts)),
        ("keeps_variance", lambda: _keeps_variance(facts)),
        ("mixes", lambda: _mixes(facts)),
        ("varies", lambda: _varies(facts)),
        ("amplifies", lambda: _amplifies(facts)),
    ]


def _walk(model: Transformer, examples: int, tokens: int) -> Iterator[Write]:
    """Every write of a stack, on independent updates of unit variance; norms where they stand."""
    generator = torch.Generator().manual_seed(2)
    shape = (examples, tokens, model.recipe.width)
    with torch.no_grad():
        state = model.first.open(torch.randn(shape, generator=generator))
        for sublayer in model.sublayers():
            connection = sublayer.connection
            update = torch.randn(shape, generator=generator)
            after = connection.write(state, update)
            yield Write(connection, model.last, state, update, after)
            settle = sublayer.settle
            state = after if settle is None else connection.settle(after, settle)


def _declarations(facts: Facts) -> str:
    declared = facts.declared
    require(bool(declared.formula), "formula is empty; write the write on one line")
    require("\n" not in declared.formula, "formula has more than one line")
    for name in ("keeps_identity", "keeps_variance", "varies", "amplifies"):
        value = getattr(declared, name)
        require(isinstance(value, bool), f"{name} is {value!r}, not True or False")
    for name, known in (
        ("starts_as", ("identity", "plain", None)),
        ("mixes", ("doubly stochastic", None)),
    ):
        value = getattr(declared, name)
        require(value in known, f"{name} is {value!r}; choose {_either(known)}")
    return declared.formula


def _either(known: tuple[str | None, ...]) -> str:
    return " or ".join(repr(value) for value in known)


def _states(facts: Facts) -> str:
    first, last = facts.fresh[0], facts.fresh[-1]
    lanes = first.connection.lanes
    shape = list(first.update.shape)
    expected = [*shape[:2], lanes, shape[2]] if lanes > 1 else shape
    with torch.no_grad():
        closed = list(last.connection.close(last.after).shape)
        require(closed == shape, f"close gives {closed}, not {shape}")
        for number, write in enumerate(facts.fresh, 1):
            c = write.connection
            require(c.lanes == lanes, f"write {number} has {c.lanes} lanes, the first has {lanes}")
            for name, state in (("before", write.before), ("after", write.after)):
                found = list(c.stream(state).shape)
                require(
                    found == expected,
                    f"the stream {name} write {number} has the shape {found}, not {expected}",
                )
            found = list(c.read(write.before).shape)
            require(found == shape, f"read at write {number} gives {found}, not {shape}")
    return f"stream {expected}, read and closed as {shape}"


def _split(facts: Facts) -> str:
    worst = 0.0
    for writes in (facts.fresh, facts.stirred):
        for number, write in enumerate(writes, 1):
            c = write.connection
            with torch.no_grad():
                kept, written = c.split(write.before, write.update)
            miss = _of_the_stream(kept + written, c.stream(write.after), c.stream(write.before))
            require(
                miss <= EPS,
                f"kept + written misses the stream after write {number} by {miss:.2g} of it; see "
                "its method split",
            )
            worst = max(worst, miss)
    return f"kept + written is the stream, {worst / EPS * 4:.2g} eps"


def _keep_and_gain(facts: Facts) -> str:
    for writes in (facts.fresh, facts.stirred):
        for number, write in enumerate(writes, 1):
            c = write.connection
            if c.keep is None or c.gain is None:
                continue
            gain: Any = c.gain
            if isinstance(gain, str):
                gain = getattr(c, gain, None)
                require(
                    isinstance(gain, nn.Parameter), f"gain names {c.gain!r}, no parameter of it"
                )
            before = c.stream(write.before)
            predicted = c.keep * before + gain * write.update
            miss = _of_the_stream(predicted, c.stream(write.after), before)
            require(
                miss <= EPS,
                f"write {number} is not keep x + gain u: it is off by {miss:.2g} of the stream",
            )
    first, last = facts.fresh[0].connection, facts.fresh[-1].connection
    if first.keep is None or first.gain is None:
        return "no scalar write"
    return f"keep {_shown(first.keep, last.keep)}, gain {_shown(first.gain, last.gain)}"


def _shown(first: object, last: object) -> str:
    texts = [f"{v:.4g}" if isinstance(v, int | float) else str(v) for v in (first, last)]
    return texts[0] if texts[0] == texts[1] else f"{texts[0]} to {texts[1]}"


def _of_the_stream(found: Tensor, after: Tensor, before: Tensor) -> float:
    """The largest miss of any token, over the larger of what stood there before and after."""
    size = torch.maximum(before.norm(dim=-1), after.norm(dim=-1)).clamp_min(1e-30)
    return float(((found - after).norm(dim=-1) / size).max())


def _keeps_identity(facts: Facts) -> str:
    def holds(writes: list[Write]) -> bool:
        with torch.no_grad():
            return all(
                _same(w, w.connection.write(w.before, torch.zeros_like(w.update))) for w in writes
            )

    return facts.judge("keeps_identity", facts.declared.keeps_identity, holds)


def _same(write: Write, after: Any) -> bool:
    """Whether a write left the stream as it was: exactly; lanes, which are summed, to rounding."""
    before, now = write.seen(write.before), write.seen(after)
    if write.connection.lanes > 1:
        return _of_the_stream(now, before, before) <= EPS
    return torch.equal(now, before)


def _starts_as(facts: Facts) -> str:
    last = facts.fresh[-1]
    with torch.no_grad():
        stream = last.seen(last.after)
        closes = _of_the_stream(last.closing.close(last.after), stream, stream) <= EPS
        identity = closes and all(_same(w, w.after) for w in facts.fresh)
        plain = closes and all(
            _of_the_stream(w.seen(w.before) + w.update, w.seen(w.after), w.seen(w.before)) <= EPS
            for w in facts.fresh
        )
    found = "identity" if identity else "plain" if plain else None
    declared = facts.declared.starts_as
    meaning = {
        "identity": "the update is not heard at the start",
        "plain": "at the start it is x + u",
        None: "at the start it is neither the identity nor x + u",
    }
    require(
        found == declared, f"starts_as is {declared!r}, and {meaning[found]}: declare {found!r}"
    )
    return meaning[found]


def _keeps_variance(facts: Facts) -> str:
    """The variance after every write, of many independent values of unit variance."""
    worst: list[float] = []
    for std in (0.0, STIR):
        walk = _walk(facts.model(std=std), EXAMPLES, TOKENS)
        worst.append(
            max((float(w.connection.stream(w.after).var()) for w in walk), key=lambda v: abs(v - 1))
        )
    start, later = (abs(v - 1) <= VARIANCE for v in worst)
    shown = f"variance {worst[0]:.3g} at the start, {worst[1]:.3g} when the weights have moved"
    if facts.declared.keeps_variance:
        require(start and later, f"keeps_variance is declared, and a write gives {shown}")
    else:
        require(
            not (start and later), f"keeps_variance holds for all weights ({shown}): declare it"
        )
    return shown


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
        "at the start": (facts.fresh, MIXED),
        "moved a little": (list(_walk(facts.model(std=LITTLE), 4, 6)), MIXED),
        "moved much": (facts.stirred, MIXED_FAR),
    }
    found: list[str] = []
    held = True
    for name, (writes, tolerance) in walks.items():
        off, lowest = _sums(writes)
        held &= off <= tolerance and lowest >= 0
        found.append(f"{off:.1g} {name}" + (f" (entry {lowest:.2g})" if lowest < 0 else ""))
    shown = f"sums off 1 by {', '.join(found)}"
    if declared.mixes is None:
        require(not held, f"mixing is doubly stochastic for all weights ({shown}): declare it")
        return f"not doubly stochastic: {shown}"
    require(held, f"mixing is not doubly stochastic: {shown}")
    return f"doubly stochastic: {shown}"


def _sums(writes: list[Write]) -> tuple[float, float]:
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
        first, *others = [_layer(facts, layer, sublayers) for layer in (1, 2, DEEP // 2, DEEP)]
    except (RuntimeError, ValueError, IndexError):
        return "not compared: late layers need all that came before"
    found = any(
        closeness(a, b) > 1e-5 for other in others for a, b in zip(first, other, strict=True)
    )
    if facts.declared.varies:
        require(found, f"varies is declared, and all of {DEEP} layers write the same")
    else:
        require(not found, f"varies is not declared, and the layers of {DEEP} write differently")
    return "from layer to layer" if found else "the same in all layers"


def _layer(facts: Facts, layer: int, sublayers: int) -> list[Tensor]:
    """The stream after every write of one layer, in evaluation and in training mode."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(64, 3, WIDTH, generator=generator)
    updates = [torch.randn(x.shape, generator=generator) for _ in range(sublayers)]
    connections = [_at(facts, layer, number, sublayers) for number in range(1, sublayers + 1)]
    found: list[Tensor] = []
    for training in (False, True):
        torch.manual_seed(4)
        with torch.no_grad():
            state = connections[0].open(x)
            for connection, update in zip(connections, updates, strict=True):
                state = connection.train(training).write(state, update)
                found.append(connection.stream(state))
    return found


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
    found = largest > 1 + AMPLIFIED
    shown = f"without updates the stream is {largest:.4g} times as long after a write, at most"
    if facts.declared.amplifies:
        require(found, f"amplifies is declared, and {shown}")
    else:
        require(not found, f"amplifies is not declared, and {shown}")
    return shown
