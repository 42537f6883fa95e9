"""The components of a tensor, one row each, computed when they are needed.

A tensor that was computed from a stream by affine steps is x = sum of its rows. What is done to x
is done to every row; a row that nobody reads (of queries, keys, gates) is never computed, and where
only some features are read, of values beside queries and keys, the others are not. What the rows
mean is said by a book (`books`).

Rows are computed in groups of at most LIMIT bytes, so that a wide tensor in the middle of a chain
never exists for all rows at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

__all__ = [
    "ENTRY",
    "LIMIT",
    "ComponentRows",
    "Form",
    "SumSize",
    "Ways",
    "both_families",
    "constant",
    "family",
    "narrow_form",
]

Tensor = torch.Tensor
LIMIT = 2**28
"""Bytes of the widest tensor that is computed for several rows at once."""


class Form(NamedTuple):
    """What one row looks like."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device


class Ways(NamedTuple):
    """By which paths a tensor can be reached: by none (`fresh`), or over one of the `last` hops.

    Every hop knows the ways of its values, so all paths can be counted from here.
    """

    fresh: bool
    last: frozenset[int]


ENTRY = Ways(True, frozenset())
"""The ways to the stream where it enters."""
_NO_WAY = Ways(False, frozenset())
"""Those of a source: no path of the stream leads there."""


class ComponentRows:
    """Components [row, *shape]; `lengths` says how many hops each has behind it.

    The last `sources` rows are of what joined on the way, those before them of the stream as it
    entered. They lie in one stack, so that every operation goes over both at once.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        like: Tensor | ComponentRows | Form,
        compute: Callable[[int, int], Tensor],
        *,
        sources: int = 0,
        parents: Sequence[ComponentRows] = (),
        ways: Ways | None = None,
        narrowed: Callable[[int, int], ComponentRows | None] | None = None,
    ) -> None:
        self.lengths = lengths if type(lengths) is tuple else tuple(lengths)
        self.sources = sources
        self.shape = like.shape
        self.dtype, self.device = like.dtype, like.device
        self.coarsest = _coarsest(self.dtype, parents)
        """The number type with the largest eps on the way to these rows."""
        self.ways = _all_ways(parents) if ways is None else ways
        """By which paths the rows of inputs were reached."""
        self.held: Tensor | None = None
        self._compute: Callable[[int, int], Tensor] | None = compute
        self._narrowed = narrowed
        self._parents = parents

    @property
    def count(self) -> int:
        return len(self.lengths)

    @property
    def inputs(self) -> int:
        """How many rows are of the stream as it entered."""
        return len(self.lengths) - self.sources

    @property
    def bytes(self) -> int:
        """Of the widest tensor on the way to one row."""
        row_bytes = self.shape.numel() * self.dtype.itemsize
        return max([row_bytes, *(one.bytes for one in self._parents if one.held is None)])

    def features(self, first: int, end: int) -> ComponentRows | None:
        """The features first to end - 1 of all rows, computed alone; None where that cannot be."""
        if self.held is not None or self._narrowed is None:
            return None
        return self._narrowed(first, end)

    def take(self, first: int, end: int) -> Tensor:
        """Rows first to end - 1. All of them, once computed, are kept."""
        if self.held is not None:
            return self.held[first:end]
        assert self._compute is not None
        rows = self._compute(first, end)
        if rows.shape[1:] != self.shape:
            rows = rows.expand(-1, *self.shape)
        if rows.dtype != self.dtype:
            rows = rows.to(self.dtype)
        if first == 0 and end == len(self.lengths):
            self._keep(rows)
        return rows

    def row(self, index: int) -> Tensor:
        """One row."""
        return self.take(index, index + 1)[0]

    def fits(self) -> bool:
        """Whether all rows may be computed at once."""
        return self.held is not None or self.count * self.bytes <= LIMIT

    def hold(self) -> Tensor:
        """Compute all rows and let go of what they were computed from."""
        if self.held is None:
            if self.fits():
                self.take(0, self.count)
            else:
                step = max(1, LIMIT // max(1, self.bytes))
                groups = range(0, self.count, step)
                self._keep(torch.cat([self.take(a, min(a + step, self.count)) for a in groups]))
        assert self.held is not None
        return self.held

    def _keep(self, rows: Tensor) -> None:
        self.held, self._compute, self._narrowed, self._parents = rows, None, None, ()


def _coarsest(dtype: torch.dtype, parents: Sequence[ComponentRows]) -> torch.dtype:
    for parent in parents:
        if parent.coarsest is not dtype:
            dtype = max(dtype, parent.coarsest, key=lambda one: torch.finfo(one).eps)
    return dtype


def _all_ways(parents: Sequence[ComponentRows]) -> Ways:
    if not parents:
        return ENTRY
    ways = parents[0].ways
    for parent in parents[1:]:
        if parent.ways is not ways:
            ways = Ways(ways.fresh or parent.ways.fresh, ways.last | parent.ways.last)
    return ways


def constant(tensor: Tensor, like: Tensor | Form, *, joins: bool = False) -> ComponentRows:
    """One row without a hop behind it. `joins`: it is a source."""

    def compute(first: int, end: int) -> Tensor:
        return tensor.expand(like.shape).unsqueeze(0)

    def narrowed(first: int, end: int) -> ComponentRows:
        form = narrow_form(like, first=first, end=end)
        return constant(tensor.expand(like.shape)[..., first:end], form, joins=joins)

    ways = _NO_WAY if joins else ENTRY
    return ComponentRows((0,), like, compute, sources=int(joins), ways=ways, narrowed=narrowed)


def both_families(inputs: ComponentRows, sources: ComponentRows) -> ComponentRows:
    """Two stacks as one: the rows of what entered, and behind them those of what joined."""

    def compute(first: int, end: int) -> Tensor:
        middle = max(first, min(end, inputs.count))
        pieces = [inputs.take(first, middle)] if middle > first else []
        if end > middle:
            pieces.append(sources.take(middle - inputs.count, end - inputs.count))
        return torch.cat(pieces)

    return ComponentRows(
        (*inputs.lengths, *sources.lengths),
        inputs,
        compute,
        sources=sources.count,
        parents=[inputs, sources],
        ways=inputs.ways,
    )


def family(rows: ComponentRows, *, sources: bool) -> ComponentRows:
    """The rows of inputs alone, or those of sources."""
    start, count = (rows.inputs, rows.sources) if sources else (0, rows.inputs)
    if count == rows.count:
        return rows

    def compute(first: int, end: int) -> Tensor:
        return rows.take(start + first, start + end)

    return ComponentRows(rows.lengths[start : start + count], rows, compute, parents=[rows])


def narrow_form(like: Tensor | Form, *, first: int, end: int) -> Form:
    """The form of a row with a part of its features."""
    return Form(torch.Size((*like.shape[:-1], end - first)), like.dtype, like.device)


class SumSize(NamedTuple):
    """How many rows of both families there are, and what one row looks like."""

    inputs: int
    sources: int
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    def new(self, make: Callable[..., Tensor], count: int) -> Tensor:
        return make((count, *self.shape), dtype=self.dtype, device=self.device)
