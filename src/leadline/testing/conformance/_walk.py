"""A walk through a stack: a random stream, opened and written to by every connection in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from leadline.parts import Transformer
from leadline.parts.connections import Connection
from leadline.testing.conformance._case import STIR, PartCase, stir
from leadline.testing.conformance._check import require

__all__ = ["EPS", "Facts", "WalkStep", "relative_miss", "walk"]

EPS = 4 * torch.finfo(torch.float32).eps
"""How far a float32 stream may be off, of its own size: as the balance of an anatomy."""
DEPTH = 4
"""Layers of the stack whose writes are checked one by one."""


@dataclass(frozen=True)
class WalkStep:
    """One write of the walk through a stack; `closing` is the connection of the last one."""

    connection: Connection
    closing: Connection
    before: Any
    update: Tensor
    after: Any

    def stream(self, state: Any) -> Tensor:
        """The stream in a state; of lanes, what they close to."""
        if self.connection.lanes > 1:
            return self.closing.close(state)
        return self.connection.stream(state)


class Facts:
    """The writes that the checks of one connection share."""

    def __init__(self, case: PartCase) -> None:
        self.case = case

    @property
    def declared(self) -> Connection:
        """A connection that declares its facts: options may change what it declares."""
        return self.case.fresh.first

    def model(self, *, std: float = 0.0) -> Transformer:
        """A stack whose connections, and nothing else, have had their weights moved."""
        model = self.case.build(depth=DEPTH)
        for number, sublayer in enumerate(model.sublayers()):
            stir(nn.ModuleDict({str(number): sublayer.connection}), std)
        return model

    @cached_property
    def fresh(self) -> list[WalkStep]:
        return list(walk(self.model(), 4, 6))

    @cached_property
    def stirred(self) -> list[WalkStep]:
        return list(walk(self.model(std=STIR), 4, 6))

    def judge(self, name: str, declared: bool, holds: Callable[[list[WalkStep]], bool]) -> str:
        """Compare whether a fact holds for all weights with whether it is declared."""
        start, later = holds(self.fresh), holds(self.stirred)
        if declared:
            require(start, f"{name} is declared and does not hold at the start")
            require(later, f"{name} is declared and does not hold when the weights have moved")
            return "declared, and it holds"
        require(not (start and later), f"{name} holds for all weights and is not declared")
        return "not declared, and it does not hold" + (" once the weights move" if start else "")


def walk(model: Transformer, examples: int, tokens: int) -> Iterator[WalkStep]:
    """Yield every write of a stack with its norms, on independent updates of unit variance."""
    generator = torch.Generator().manual_seed(2)
    shape = (examples, tokens, model.recipe.width)
    dtype = next(model.parameters()).dtype
    with torch.no_grad():
        state = model.first.open(torch.randn(shape, generator=generator).to(dtype))
        for sublayer in model.sublayers():
            connection = sublayer.connection
            update = torch.randn(shape, generator=generator).to(dtype)
            after = connection.write(state, update)
            yield WalkStep(connection, model.last, state, update, after)
            settle = sublayer.settle
            state = after if settle is None else connection.settle(after, settle)


def relative_miss(predicted: Tensor, after: Tensor, before: Tensor) -> float:
    """Return the largest miss of any token, over the larger of its sizes before and after."""
    size = torch.maximum(before.norm(dim=-1), after.norm(dim=-1)).clamp_min(1e-30)
    return float(((predicted - after).norm(dim=-1) / size).max())
