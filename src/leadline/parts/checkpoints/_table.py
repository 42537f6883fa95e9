"""Which of our weights is which of theirs, written once and used in both directions.

    join(parts) -> ours          their tensors to one of ours
    split(ours) -> parts         and back, bit by bit

Every change only moves numbers, so gradients travel by the same table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = [
    "SAME",
    "TRANSPOSED",
    "Change",
    "HeadMajor",
    "StackedTensors",
    "WeightRow",
    "linear_rows",
    "norm_rows",
]


class Change:
    """How their tensors become one of ours; here theirs is ours, unchanged."""

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Theirs to ours."""
        (part,) = parts
        return part

    def split(self, ours: Tensor) -> tuple[Tensor, ...]:
        """Ours to theirs."""
        return (ours,)

    def of_bias(self) -> Change:
        """Return the change of the bias that belongs to a matrix of this change."""
        return self


class Transposed(Change):
    """Transposed: GPT-1 and GPT-2 store their matrices as input times output."""

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        (part,) = parts
        return part.T

    def split(self, ours: Tensor) -> tuple[Tensor, ...]:
        return (ours.T,)

    def of_bias(self) -> Change:
        return SAME


@dataclass(frozen=True)
class StackedTensors(Change):
    """Several of their tensors stand under each other in one of ours, with so many rows each."""

    rows: tuple[int, ...]

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(parts))

    def split(self, ours: Tensor) -> tuple[Tensor, ...]:
        return ours.split(self.rows)


@dataclass(frozen=True)
class HeadMajor(Change):
    """Theirs holds query, key and value of the first head, then of the second; ours of all heads."""

    heads: int

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        (part,) = parts
        return part.unflatten(0, (self.heads, 3, -1)).transpose(0, 1).flatten(0, 2)

    def split(self, ours: Tensor) -> tuple[Tensor, ...]:
        return (ours.unflatten(0, (3, self.heads, -1)).transpose(0, 1).flatten(0, 2),)


SAME = Change()
TRANSPOSED = Transposed()


@dataclass(frozen=True)
class WeightRow:
    """One of our tensors and theirs."""

    ours: str
    theirs: tuple[str, ...]
    change: Change = SAME


def linear_rows(
    ours: str, theirs: str | Sequence[str], *, bias: bool, change: Change = SAME
) -> Iterator[WeightRow]:
    """The rows of a linear map: its weight, and its bias where it has one."""
    names = (theirs,) if isinstance(theirs, str) else tuple(theirs)
    yield WeightRow(f"{ours}.weight", tuple(f"{name}.weight" for name in names), change)
    if bias:
        yield WeightRow(f"{ours}.bias", tuple(f"{name}.bias" for name in names), change.of_bias())


def norm_rows(ours: str, theirs: str, *, bias: bool) -> Iterator[WeightRow]:
    """The rows of a norm: its gain, and its shift where it has one."""
    yield from linear_rows(ours, theirs, bias=bias)
