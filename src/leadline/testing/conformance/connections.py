"""Checks of a connection: what it declares, the shapes of its state, and that writes add up."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from leadline.errors import join_words
from leadline.numerics.half_precision import prepare_half_products
from leadline.testing.conformance import connection_facts
from leadline.testing.conformance._case import STIR, PartCase
from leadline.testing.conformance._check import Question, require
from leadline.testing.conformance._walk import EPS, Facts, relative_miss, walk

__all__ = ["questions"]

DERIVATIVE = 1e-5
"""How far autograd may be from a difference quotient, whose own error is about 1e-9."""


def questions(case: PartCase) -> list[Question]:
    """The checks of a connection's own word."""
    facts = Facts(case)
    return [
        ("declarations", lambda: _declarations(facts)),
        ("states", lambda: _states(facts)),
        ("split", lambda: _split(facts)),
        ("derivatives", lambda: _derivatives(facts)),
        ("keep and gain", lambda: _keep_and_gain(facts)),
        *connection_facts.questions(facts),
    ]


def _declarations(facts: Facts) -> str:
    declared = facts.declared
    require(bool(declared.formula), "formula is empty; write the write on one line")
    require("\n" not in declared.formula, "formula has more than one line")
    for name in ("keeps_identity", "keeps_variance", "varies", "amplifies"):
        value = getattr(declared, name)
        require(isinstance(value, bool), f"{name} is {value!r}, not True or False")
    for name, values in (
        ("starts_as", ("identity", "plain", None)),
        ("mixes", ("doubly stochastic", None)),
    ):
        value = getattr(declared, name)
        choices = join_words(map(repr, values), last="or")
        require(value in values, f"{name} is {value!r}; choose {choices}")
    return declared.formula


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
                actual = list(c.stream(state).shape)
                require(
                    actual == expected,
                    f"the stream {name} write {number} has the shape {actual}, not {expected}",
                )
            actual = list(c.read(write.before).shape)
            require(actual == shape, f"read at write {number} gives {actual}, not {shape}")
    prepare_half_products()
    for dtype in (torch.float64, torch.bfloat16):
        write = next(walk(facts.model().to(dtype), 2, 3))
        actual = write.connection.stream(write.after).dtype
        require(
            actual == dtype,
            f"a write to a stream in {_short(dtype)} gives {_short(actual)}; keep the number type",
        )
    return f"stream {expected}, read and closed as {shape}"


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _split(facts: Facts) -> str:
    worst = 0.0
    for writes in (facts.fresh, facts.stirred):
        for number, write in enumerate(writes, 1):
            c = write.connection
            with torch.no_grad():
                kept, written = c.split(write.before, write.update)
            miss = relative_miss(kept + written, c.stream(write.after), c.stream(write.before))
            require(
                miss <= EPS,
                f"kept + written misses the stream after write {number} by {miss:.2g} of it; see "
                "its method split",
            )
            worst = max(worst, miss)
    return f"kept + written is the stream, {worst / EPS * 4:.2g} eps"


def _derivatives(facts: Facts) -> str:
    """Autograd against a central difference, along one direction of the stream and the updates.

    Whatever a write adds, the loss at the start looks normal even where its gradient is cut.
    """
    model = facts.model(std=STIR).double()
    connections = [sublayer.connection for sublayer in model.sublayers()]
    generator = torch.Generator().manual_seed(0)
    shape = (2, 3, model.recipe.width)
    points = torch.randn(len(connections) + 1, *shape, generator=generator, dtype=torch.float64)
    direction = torch.randn(points.shape, generator=generator, dtype=torch.float64)
    cotangent = torch.randn(shape, generator=generator, dtype=torch.float64)

    def total(values: torch.Tensor) -> torch.Tensor:
        state = connections[0].open(values[0])
        for connection, update in zip(connections, values[1:], strict=True):
            state = connection.write(state, update * connection.read(state).tanh())
        return (connections[-1].close(state) * cotangent).sum()

    points.requires_grad_()
    (gradient,) = torch.autograd.grad(total(points), points)
    with torch.no_grad():
        step = 1e-5
        quotient = (total(points + step * direction) - total(points - step * direction)) / (
            2 * step
        )
        slope = (gradient * direction).sum()
        miss = float((slope - quotient).abs() / quotient.abs().clamp_min(1e-3))
    require(
        miss < DERIVATIVE,
        f"autograd gives {float(slope):.6g} along a direction in which the stream changes by "
        f"{float(quotient):.6g}: something in open, read, write or close cuts the gradient",
    )
    return f"autograd and differences agree to {miss:.0e}"


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
                    isinstance(gain, nn.Parameter),
                    f"gain names {c.gain!r}, which is not one of its parameters",
                )
            before = c.stream(write.before)
            predicted = c.keep * before + gain * write.update
            miss = relative_miss(predicted, c.stream(write.after), before)
            require(
                miss <= EPS,
                f"write {number} is not keep x + gain u: it is off by {miss:.2g} of the stream",
            )
    first, last = facts.fresh[0].connection, facts.fresh[-1].connection
    if first.keep is None or first.gain is None:
        return "no scalar write"
    return f"keep {_range_text(first.keep, last.keep)}, gain {_range_text(first.gain, last.gain)}"


def _range_text(first: object, last: object) -> str:
    texts = [f"{v:.4g}" if isinstance(v, int | float) else str(v) for v in (first, last)]
    return texts[0] if texts[0] == texts[1] else f"{texts[0]} to {texts[1]}"
