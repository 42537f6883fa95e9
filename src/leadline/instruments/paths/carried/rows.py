"""The components of a tensor, one row each, computed when they are needed.

A tensor that was computed from a stream by affine steps is x = sum of its rows. What is done to x
is done to every row; a row that nobody reads (of queries, keys, gates) is never computed. Two
books are kept in this form:

    ByLength   row k: all paths with k hops. A hop moves row k to row k + 1.
    ByPlan     row s: one path, which takes given heads at given hops and skips the others.

A hop is a product with a pattern that was itself computed from the stream: softmax times values.
Rows are computed in groups of at most LIMIT bytes, so that a wide tensor in the middle of a chain
never exists for all rows at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import torch

__all__ = [
    "ENTRY",
    "LIMIT",
    "Book",
    "ByLength",
    "ByPlan",
    "ComponentRows",
    "Form",
    "Hop",
    "Ways",
    "added_rows",
    "constant",
    "mapped_rows",
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


class ComponentRows:
    """Components [row, *shape]; `lengths` says how many hops each has behind it."""

    def __init__(
        self,
        lengths: Sequence[int],
        like: Tensor | ComponentRows | Form,
        compute: Callable[[int, int], Tensor],
        *,
        parents: Sequence[ComponentRows] = (),
        ways: Ways | None = None,
        narrowed: Callable[[int, int], ComponentRows | None] | None = None,
    ) -> None:
        self.lengths = tuple(lengths)
        self.shape = like.shape
        self.dtype, self.device = like.dtype, like.device
        self.held: Tensor | None = None
        self._compute: Callable[[int, int], Tensor] | None = compute
        self._narrowed = narrowed
        self._parents = tuple(parents)
        self._ways = ways
        self._coarsest: torch.dtype | None = None

    # Most rows are never computed, so what only those need waits until somebody asks for it.

    @property
    def bytes(self) -> int:
        """Of the widest tensor on the way to one row."""
        row_bytes = self.shape.numel() * self.dtype.itemsize
        return max([row_bytes, *(one.bytes for one in self._parents if one.held is None)])

    @property
    def coarsest(self) -> torch.dtype:
        """The number type with the largest eps on the way to these rows."""
        if self._coarsest is None:
            types = {self.dtype, *(parent.coarsest for parent in self._parents)}
            self._coarsest = max(types, key=lambda one: torch.finfo(one).eps)
        return self._coarsest

    @property
    def ways(self) -> Ways:
        """By which paths these rows were reached."""
        if self._ways is None:
            self._ways = _all_ways(self._parents)
        return self._ways

    def features(self, first: int, end: int) -> ComponentRows | None:
        """The features first to end - 1 of all rows, computed alone; None where that cannot be."""
        if self.held is not None or self._narrowed is None:
            return None
        return self._narrowed(first, end)

    @property
    def count(self) -> int:
        return len(self.lengths)

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
        if (first, end) == (0, self.count):
            self._keep(rows)
        return rows

    def row(self, index: int) -> Tensor:
        """One row."""
        return self.take(index, index + 1)[0]

    def hold(self) -> Tensor:
        """Compute all rows and let go of what they were computed from."""
        if self.held is None:
            step = max(1, LIMIT // max(1, self.bytes))
            if step >= self.count:
                self.take(0, self.count)
            else:
                groups = range(0, self.count, step)
                self._keep(torch.cat([self.take(a, min(a + step, self.count)) for a in groups]))
        assert self.held is not None
        return self.held

    def _keep(self, rows: Tensor) -> None:
        assert self.coarsest and self.ways  # both are read off the parents, which go now
        self.held, self._compute, self._narrowed, self._parents = rows, None, None, ()

    def zeros(self, count: int) -> Tensor:
        """So many rows of zeros."""
        return torch.zeros((count, *self.shape), dtype=self.dtype, device=self.device)


def _all_ways(parents: Sequence[ComponentRows]) -> Ways:
    if len(parents) == 1:
        return parents[0].ways
    fresh = not parents or any(parent.ways.fresh for parent in parents)
    return Ways(fresh, frozenset[int]().union(*(parent.ways.last for parent in parents)))


class Hop(Protocol):
    """One product of a pattern with values: which one it is, and how its heads lie."""

    @property
    def index(self) -> int: ...

    @property
    def numbers(self) -> Tensor | None:
        """The head of every row of the result, [..., row]; None: there is one."""
        ...

    @property
    def features(self) -> int:
        """The axis of the result along which the features of a row lie."""
        ...


class Book(Protocol):
    """What the rows mean."""

    def opened(self, x: Tensor) -> ComponentRows:
        """The rows of the stream as it enters."""
        ...

    def source(self, tensor: Tensor, like: Tensor) -> ComponentRows | None:
        """The rows of something that joins on the way; None where it is not followed."""
        ...

    def joined(self, stacks: Sequence[ComponentRows]) -> list[ComponentRows]:
        """The same rows, in stacks of one height, ready to be added or set side by side."""
        ...

    def hop(
        self, rows: ComponentRows, hop: Hop, product: Callable[[Tensor], Tensor], *, like: Tensor
    ) -> ComponentRows:
        """The rows behind a hop."""
        ...


class ByLength:
    """Row k is the sum of all paths with k hops."""

    def opened(self, x: Tensor) -> ComponentRows:
        return constant(x, x)

    def source(self, tensor: Tensor, like: Tensor) -> ComponentRows | None:
        return constant(tensor, like)

    def joined(self, stacks: Sequence[ComponentRows]) -> list[ComponentRows]:
        if len(stacks) == 1:
            return list(stacks)
        most = max(rows.count for rows in stacks)
        return [rows if rows.count == most else _taller(rows, most) for rows in stacks]

    def hop(
        self, rows: ComponentRows, hop: Hop, product: Callable[[Tensor], Tensor], *, like: Tensor
    ) -> ComponentRows:
        def compute(first: int, end: int) -> Tensor:
            parts: list[Tensor] = []
            if first == 0:
                parts.append(behind.zeros(1))
            if end > 1:
                parts.append(product(rows.take(max(first - 1, 0), end - 1)))
            return torch.cat(parts) if len(parts) > 1 else parts[0]

        ways = Ways(False, frozenset([hop.index]))
        behind = ComponentRows(range(rows.count + 1), like, compute, parents=[rows], ways=ways)
        return behind


class ByPlan:
    """Row s follows plan s alone: hop index -> the head that it takes there.

    A hop that is not in the plan gives nothing. Where two tensors meet, the one with more hops
    behind it is the plan's: the other skipped a hop that the plan takes. Biases are not followed.
    """

    def __init__(self, plans: Sequence[Mapping[int, int]]) -> None:
        self.plans = tuple(plans)

    def opened(self, x: Tensor) -> ComponentRows:
        count = len(self.plans)
        return ComponentRows([0] * count, x, lambda first, end: x.expand(end - first, *x.shape))

    def source(self, tensor: Tensor, like: Tensor) -> ComponentRows | None:
        return None

    def joined(self, stacks: Sequence[ComponentRows]) -> list[ComponentRows]:
        most = [max(lengths) for lengths in zip(*(rows.lengths for rows in stacks), strict=True)]
        return [rows if list(rows.lengths) == most else _leading(rows, most) for rows in stacks]

    def hop(
        self, rows: ComponentRows, hop: Hop, product: Callable[[Tensor], Tensor], *, like: Tensor
    ) -> ComponentRows:
        heads = [plan.get(hop.index) for plan in self.plans]
        numbers = hop.numbers if any(head is not None for head in heads) else None
        lengths = [n + (head is not None) for n, head in zip(rows.lengths, heads, strict=True)]

        def compute(first: int, end: int) -> Tensor:
            taken = behind.zeros(end - first)
            for at in range(first, end):
                head = heads[at]
                if head is None:
                    continue
                mixed = product(rows.take(at, at + 1))[0]
                if numbers is not None:
                    mixed = mixed * (numbers == head).unsqueeze(hop.features).to(mixed.dtype)
                taken[at - first] = mixed
            return taken

        behind = ComponentRows(lengths, like, compute, parents=[rows])
        return behind


def constant(tensor: Tensor, like: Tensor | Form) -> ComponentRows:
    """One row without a hop behind it."""

    def compute(first: int, end: int) -> Tensor:
        return tensor.expand(like.shape).unsqueeze(0)

    def narrowed(first: int, end: int) -> ComponentRows:
        return constant(
            tensor.expand(like.shape)[..., first:end], narrow_form(like, first=first, end=end)
        )

    return ComponentRows([0], like, compute, narrowed=narrowed)


def narrow_form(like: Tensor | Form, *, first: int, end: int) -> Form:
    """The form of a row with a part of its features."""
    return Form(torch.Size((*like.shape[:-1], end - first)), like.dtype, like.device)


def mapped_rows(
    book: Book,
    stacks: Sequence[ComponentRows],
    function: Callable[..., Tensor],
    *,
    like: Tensor | Form,
    narrowed: Callable[[int, int], ComponentRows | None] | None = None,
) -> ComponentRows:
    """Apply a function, linear in all its arguments together, to the rows of one or more stacks.

    `narrowed` computes a part of the features alone, where that is less work.
    """
    level = book.joined(stacks)

    def compute(first: int, end: int) -> Tensor:
        return function(*(rows.take(first, end) for rows in level))

    return ComponentRows(level[0].lengths, like, compute, parents=level, narrowed=narrowed)


def added_rows(
    book: Book, terms: Sequence[tuple[ComponentRows, float]], *, like: Tensor | Form
) -> ComponentRows:
    """The sum of factor times rows. Rows that a lower stack does not have are copied."""
    stacks, factors = [rows for rows, _ in terms], [factor for _, factor in terms]

    def narrowed(first: int, end: int) -> ComponentRows | None:
        parts = [rows.features(first, end) for rows in stacks]
        kept = [
            (part, factor) for part, factor in zip(parts, factors, strict=True) if part is not None
        ]
        form = narrow_form(like, first=first, end=end)
        return added_rows(book, kept, like=form) if len(kept) == len(parts) else None

    if len(terms) != 2 or not isinstance(book, ByLength) or factors[0] != 1:

        def function(*stacks: Tensor) -> Tensor:
            result = stacks[0] * factors[0] if factors[0] != 1 else stacks[0]
            for stack, factor in zip(stacks[1:], factors[1:], strict=True):
                result = torch.add(result, stack, alpha=factor)
            return result

        return mapped_rows(book, stacks, function, like=like, narrowed=narrowed)

    one, other = stacks
    tall, factor = (one, 1) if one.count >= other.count else (other, factors[1])

    def compute(first: int, end: int) -> Tensor:
        both = max(first, min(end, one.count, other.count))
        if both == end:
            return torch.add(one.take(first, end), other.take(first, end), alpha=factors[1])
        stack = tall.take(first, end)
        if both == first and factor == 1:
            return stack
        total = torch.empty((end - first, *like.shape), dtype=like.dtype, device=like.device)
        short = (other if tall is one else one).take(first, both) if both > first else None
        if short is not None:
            terms = (
                (stack[: both - first], short) if tall is one else (short, stack[: both - first])
            )
            torch.add(*terms, alpha=factors[1], out=total[: both - first])
        total[both - first :] = (
            stack[both - first :] if factor == 1 else factor * stack[both - first :]
        )
        return total

    return ComponentRows(tall.lengths, like, compute, parents=stacks, narrowed=narrowed)


def _taller(rows: ComponentRows, count: int) -> ComponentRows:
    """The rows with rows of zeros behind them."""

    def compute(first: int, end: int) -> Tensor:
        there = max(first, min(end, rows.count))
        parts = [rows.take(first, there)] if there > first else []
        parts += [rows.zeros(end - there)] if end > there else []
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    return ComponentRows(range(count), rows, compute, parents=[rows])


def _leading(rows: ComponentRows, lengths: Sequence[int]) -> ComponentRows:
    """The rows with zeros where another tensor is further on its way."""
    kept = torch.tensor(
        [length == most for length, most in zip(rows.lengths, lengths, strict=True)]
    )
    kept = kept.to(rows.device)

    def compute(first: int, end: int) -> Tensor:
        components = rows.take(first, end)
        keep = kept[first:end].reshape(-1, *[1] * (components.ndim - 1))
        return torch.where(
            keep, components, torch.zeros((), dtype=components.dtype, device=components.device)
        )

    return ComponentRows(lengths, rows, compute, parents=[rows])
