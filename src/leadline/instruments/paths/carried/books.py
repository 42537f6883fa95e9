"""What the rows of components mean, and how they meet: two books are kept.

    ByLength   row k: all paths with k hops. A hop moves row k to row k + 1.
    ByPlan     row s: one path, which takes given heads at given hops and skips the others.

A hop is a product with a pattern that was itself computed from the stream: softmax times values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch

from leadline.instruments.paths.carried.rows import ComponentRows, Form, SumSize, Ways, constant

__all__ = ["Book", "ByLength", "ByPlan", "Hop", "mapped_rows"]

Tensor = torch.Tensor


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
        return constant(tensor, like, joins=True)

    def joined(self, stacks: Sequence[ComponentRows]) -> list[ComponentRows]:
        if len(stacks) == 1:
            return list(stacks)
        inputs, sources = (max(rows.inputs for rows in stacks), max(r.sources for r in stacks))
        return [
            rows
            if (rows.inputs, rows.sources) == (inputs, sources)
            else _taller(rows, inputs=inputs, sources=sources)
            for rows in stacks
        ]

    def hop(
        self, rows: ComponentRows, hop: Hop, product: Callable[[Tensor], Tensor], *, like: Tensor
    ) -> ComponentRows:
        inputs, sources = rows.inputs + 1, rows.sources + (rows.sources > 0)

        def compute(first: int, end: int) -> Tensor:
            size = SumSize(inputs, sources, like.shape, like.dtype, like.device)
            return _placed(rows, first, end, size, product, lead=1)

        return ComponentRows(
            (*range(inputs), *range(sources)),
            like,
            compute,
            sources=sources,
            parents=[rows],
            ways=Ways(False, frozenset([hop.index])),
        )


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
            taken = torch.zeros((end - first, *like.shape), dtype=like.dtype, device=like.device)
            for at in range(first, end):
                head = heads[at]
                if head is None:
                    continue
                mixed = product(rows.take(at, at + 1))[0]
                if numbers is not None:
                    mixed = mixed * (numbers == head).unsqueeze(hop.features).to(mixed.dtype)
                taken[at - first] = mixed
            return taken

        return ComponentRows(lengths, like, compute, parents=[rows])


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

    return ComponentRows(
        level[0].lengths,
        like,
        compute,
        sources=level[0].sources,
        parents=level,
        narrowed=narrowed,
    )


def _placed(
    rows: ComponentRows,
    first: int,
    end: int,
    size: SumSize,
    function: Callable[[Tensor], Tensor],
    *,
    lead: int = 0,
) -> Tensor:
    """A function of rows that lie in a larger stack, among zeros: `lead` of them in front."""
    every = None
    if (first, end) == (0, size.inputs + size.sources):
        every = function(rows.take(0, rows.count))
    pieces: list[Tensor] = []
    for start, count, at, there in (
        (0, size.inputs, 0, rows.inputs),
        (size.inputs, size.sources, rows.inputs, rows.sources),
    ):
        low, high = max(first - start, 0), min(end - start, count)
        if low >= high:
            continue
        begin, stop = max(low - lead, 0), max(min(high - lead, there), 0)
        zeros = min(high, lead) - low
        if zeros > 0:
            pieces.append(size.new(torch.zeros, zeros))
        if stop > begin:
            among = slice(at + begin, at + stop)
            pieces.append(
                function(rows.take(among.start, among.stop)) if every is None else every[among]
            )
        zeros = high - max(low, lead + there)
        if zeros > 0:
            pieces.append(size.new(torch.zeros, zeros))
    return torch.cat(pieces) if len(pieces) > 1 else pieces[0]


def _taller(rows: ComponentRows, *, inputs: int, sources: int) -> ComponentRows:
    """The rows of both families with rows of zeros behind them."""
    size = SumSize(inputs, sources, rows.shape, rows.dtype, rows.device)

    def compute(first: int, end: int) -> Tensor:
        return _placed(rows, first, end, size, lambda stack: stack)

    lengths = (*range(inputs), *range(sources))
    return ComponentRows(lengths, rows, compute, sources=sources, parents=[rows])


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
